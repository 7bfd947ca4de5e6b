"""Programs that measure and print figures; never run as tests."""
