# The program with what it needs on a CPU, or with --build-arg DEVICE=gpu on NVIDIA GPUs and DEVICE=tpu
# on TPUs:
#   docker build --build-arg DEVICE=cpu -t wgan-gp .
#   docker run --rm -v "$PWD:/srv" wgan-gp --model_dir=runs/digits    # --gpus=all for GPUs
FROM python:3.12-slim
ARG DEVICE=cpu
WORKDIR /opt/wgan-gp
COPY requirements*.txt ./
RUN ln -s requirements.txt requirements-cpu.txt && pip install --no-cache-dir -r requirements-${DEVICE}.txt
COPY pyproject.toml setup.py flags.py README.md LICENSE ./
COPY configs ./configs
COPY losses ./losses
COPY models ./models
COPY wgan_gp ./wgan_gp
RUN pip install --no-cache-dir --no-deps .
WORKDIR /srv
ENTRYPOINT ["wgan-gp"]
