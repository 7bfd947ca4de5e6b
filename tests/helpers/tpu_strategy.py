"""The real tf.distribute.TPUStrategy over logical CPU devices, for tests without a TPU.

`make_tpu_strategy` returns a strategy that traces the same graphs as on a TPU. Those graphs contain
operations of a TPU, so this machine cannot run them. Inside `executing`, the strategy traces graphs
with the same replica program that can be run: each logical CPU device acts as a core.

Both depend on private parts of TensorFlow, named where they are used.
"""

import collections
import contextlib
import itertools
from unittest import mock

import tensorflow as tf
from tensorflow.python.distribute import tpu_util
from tensorflow.python.eager import context
from tensorflow.python.eager.polymorphic_function.concrete_function import ConcreteFunction
from tensorflow.python.tpu import tpu, tpu_replication
from tensorflow.python.tpu.ops import tpu_ops
from tensorflow.python.tpu.tpu_system_metadata import TPUSystemMetadata

# Each all-reduce of the process has a key of its own.
_INSTANCE_KEYS = itertools.count(1)


class _CoreName(str):
    """The name of a CPU device, which passes the test by which TPUStrategy finds TPU cores."""

    __slots__ = ()

    def __contains__(self, part: str) -> bool:
        return part == "device:TPU:" or super().__contains__(part)


class CpuResolver(tf.distribute.cluster_resolver.TPUClusterResolver):
    """A resolver that presents CPU devices as the cores of a TPU.

    Args:
      devices: The full names of the devices, in the order of the replicas.
      hosts: The number of machines, which have equal numbers of devices.
      address: HOST:PORT of the TensorFlow server of the devices. None for those of this process.
    """

    def __init__(self, devices: list[str], hosts: int, address: str | None = None):
        # By name, the constructor of the base class would request the TPU from Google.
        if address is not None:
            super().__init__(tpu=f"grpc://{address}")
        self._is_remote = address is not None
        self._cores = [context.LogicalDevice(_CoreName(name), "TPU") for name in devices]
        self._hosts = hosts

    def get_tpu_system_metadata(self) -> TPUSystemMetadata:
        return TPUSystemMetadata(
            num_cores=len(self._cores),
            num_hosts=self._hosts,
            num_of_cores_per_host=len(self._cores) // self._hosts,
            topology=None,
            devices=tuple(self._cores),
        )

    def cluster_spec(self) -> tf.train.ClusterSpec:
        return super().cluster_spec() if self._is_remote else tf.train.ClusterSpec({})


def make_tpu_strategy(cores: int = 2) -> tf.distribute.TPUStrategy:
    """Returns a TPUStrategy whose cores are logical CPU devices of this process."""
    return tpu_strategy_over([device.name for device in tf.config.list_logical_devices()[:cores]])


def tpu_strategy_over(devices: list[str], hosts: int = 1) -> tf.distribute.TPUStrategy:
    """Returns a TPUStrategy whose cores are the given CPU devices.

    Args:
      devices: The full names of the devices, in the order of the replicas.
      hosts: The number of machines, which have equal numbers of devices.
    """
    return tf.distribute.TPUStrategy(CpuResolver(devices, hosts))


@contextlib.contextmanager
def executing(strategy: tf.distribute.TPUStrategy):
    """Lets `strategy.run` trace programs that run on the CPU devices of the strategy.

    Only tracing must be inside: a function that was traced here can be called later, and one that
    was traced earlier does not become executable. In place of `tpu.replicate`, the replica function
    is traced once, in a TPU's replica context, and called on each device. CrossReplicaSum is
    replaced by CollectiveReduceV2.
    """
    devices = strategy.extended.worker_devices

    def replicate(computation, inputs, **_):
        return _call_on_each(devices, computation, inputs)

    def cross_replica_sum(x, group_assignment=None, name=None):
        assert group_assignment is None
        return _sum_over(len(devices), tf.convert_to_tensor(x), name)

    with (
        mock.patch.object(tpu, "replicate", replicate),
        mock.patch.object(tpu_ops, "cross_replica_sum", cross_replica_sum),
    ):
        yield


class _ExecutableContext(tpu_replication.TPUReplicateContext):
    """The context of a TPU's replica program, without marking operations for a TPU.

    Attributes:
      handles: For each variable, by the ID of its first replica's handle, all replicas' handles.
    """

    def __init__(self, replicas: int):
        super().__init__(name="replica_program", num_replicas=replicas, pivot=None)
        self.handles: dict[int, list[tf.Tensor]] = {}

    def AddOp(self, op: tf.Operation) -> None:  # noqa: N802 (TensorFlow's name)
        pass

    def get_replicated_var_handle(
        self, name, handle_id, vars_, is_mirrored=False, is_packed=False
    ) -> tf.Tensor:
        if handle_id not in self._replicated_vars:
            copies = vars_[0]._distributed_variables if is_packed else vars_
            handles = [copy.handle for copy in copies]
            _, graph = tpu_util.enclosing_tpu_context_and_graph()
            self._replicated_vars[handle_id] = graph.capture(handles[0])
            self.handles[id(handles[0])] = handles
        return self._replicated_vars[handle_id]


def _call_on_each(devices, computation, inputs):
    """Traces a computation once, and calls it on each device with the inputs of one replica."""
    replica_context = _ExecutableContext(len(devices))

    def program(*arguments):
        replica_context.Enter()
        try:
            results = computation(*tf.nest.pack_sequence_as(inputs[0], arguments))
            return [tf.identity(each) for each in tf.nest.flatten(results) if each is not None]
        finally:
            replica_context.Exit()

    flat_inputs = [list(map(tf.convert_to_tensor, tf.nest.flatten(each))) for each in inputs]
    specs = [tf.TensorSpec(tensor.shape, tensor.dtype) for tensor in flat_inputs[0]]
    traced = tf.function(program, autograph=False).get_concrete_function(*specs)
    results = []
    for replica, device in enumerate(devices):
        captured = [
            replica_context.handles.get(id(tensor), [tensor] * len(devices))[replica]
            for tensor in traced.captured_inputs
        ]
        with tf.device(str(device)):
            results.append(traced._call_flat(flat_inputs[replica], captured))
    return results


def _sum_over(replicas: int, x: tf.Tensor, name: str | None) -> tf.Tensor:
    """Returns the sum over all replicas; its gradient is the sum of the gradients."""

    @tf.custom_gradient
    def total(value):
        result = tf.raw_ops.CollectiveReduceV2(
            input=value,
            group_size=replicas,
            group_key=1000 + replicas,  # each number of replicas is a group of its own
            instance_key=next(_INSTANCE_KEYS),
            ordering_token=[],
            merge_op="Add",
            final_op="Id",
            name=name,
        )
        return result, lambda upstream: _sum_over(replicas, upstream, None)

    return x if replicas == 1 else total(x)


def trace(call) -> ConcreteFunction:
    """Returns the first function with a replica program for TPUs that a call would execute.

    The function is not executed, because this machine has no kernels for it. The functions without
    a replica program that the call executes before are executed.
    """
    execute = ConcreteFunction._call_flat

    def execute_or_stop(function, tensor_inputs, captured_inputs):
        if tf.executing_eagerly() and operations(function.graph)["TPUReplicateMetadata"]:
            raise _Traced(function)
        return execute(function, tensor_inputs, captured_inputs)

    try:
        with mock.patch.object(ConcreteFunction, "_call_flat", execute_or_stop):
            call()
    except _Traced as traced:
        return traced.function
    raise AssertionError("the call executes no replica program")


class _Traced(Exception):  # noqa: N818 (it is not an error)
    def __init__(self, function: ConcreteFunction):
        super().__init__("a function with a replica program was traced")
        self.function = function


def operations(graph: tf.Graph, *, only_replicated: bool = False) -> collections.Counter[str]:
    """Counts the operations of a graph by type, including those of the functions that it calls.

    Args:
      graph: The graph.
      only_replicated: Whether to count only the operations of replica programs for TPUs, which
        TPUStrategy marks with an attribute.
    """
    definition = graph.as_graph_def()
    bodies = {
        function.signature.name: function.node_def for function in definition.library.function
    }
    counts: collections.Counter[str] = collections.Counter()

    def count(nodes, marked):
        for node in nodes:
            inside = marked or "_tpu_replicate" in node.attr
            counts[node.op] += inside
            for attribute in node.attr.values():
                for function in [attribute.func, *attribute.list.func]:
                    if function.name:
                        count(bodies[function.name], inside)

    count(definition.node, not only_replicated)
    return +counts


def pass_bridge(function: ConcreteFunction) -> int:
    """Converts a function as TensorFlow does before it compiles replica programs for a TPU.

    Returns:
      The number of places from which the host launches a program on the cores.

    Raises:
      tf.errors.OpError: If the bridge rejects the function.
    """
    module = tf.mlir.experimental.convert_function(function, pass_pipeline="")
    module = tf.mlir.experimental.run_pass_pipeline(module, "tf-replicated-clustering-bridge-v2")
    launches = module.count('"tf_device.cluster_func"')
    assert launches == module.count("tf_device.replicate(")
    return launches
