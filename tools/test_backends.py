"""Runs the tests once on each installed backend.

    python -m tools.test_backends [arguments of pytest]

Keras fixes its backend when it is imported, so each backend is a process of
its own. KERAS_BACKEND selects one; without it every installed one is run.
Tests marked `backend_independent` run on the first of them only. With
JUNIT_DIR=DIRECTORY each backend's results and durations are written to
DIRECTORY/BACKEND.xml.
"""

import importlib.util
import os
import subprocess
import sys
import time

BACKENDS = ("tensorflow", "jax", "torch")


def main(arguments: list[str]) -> int:
    """Return 0 if every backend that was run passed."""
    asked = os.environ.get("KERAS_BACKEND")
    wanted = (asked,) if asked else BACKENDS
    reports = os.environ.get("JUNIT_DIR")
    lines, failed, ran = [], False, 0
    for backend in wanted:
        if importlib.util.find_spec(backend) is None:
            lines.append(f"{backend}: not installed, not run")
            continue
        print(f"== {backend} ==", flush=True)
        start = time.time()
        options = ["-m", "not backend_independent"] if ran else []
        if reports:
            options.append(f"--junitxml={os.path.join(reports, backend)}.xml")
        code = subprocess.call(
            [sys.executable, "-m", "pytest", *options, *arguments],
            env={
                **os.environ,
                "KERAS_BACKEND": backend,
                "TF_CPP_MIN_LOG_LEVEL": "2",
                # Several workers share the processors, with tiny models.
                "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
            },
        )
        ran += 1
        failed = failed or code != 0
        outcome = "passed" if code == 0 else f"FAILED (exit status {code})"
        lines.append(f"{backend}: {outcome} in {time.time() - start:.0f} s")
    print("\n".join(["", "Backends:", *lines]), flush=True)
    if not ran:
        print("No backend is installed: pip install -e '.[jax]'")
    return int(failed or not ran)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
