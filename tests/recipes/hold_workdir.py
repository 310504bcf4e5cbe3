"""One of two processes of a run that holds a workdir, until Ctrl-C.

python hold_workdir.py WORKDIR ADDRESSES INDEX
"""

import json
import os
import pathlib
import signal
import sys

import keras

from keras_vit import distribution
from recipes import workdir as workdirs

folder, addresses, index = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
if keras.backend.backend() == "jax":
    devices = distribution.setup(
        coordinator=addresses, num_processes=2, process_id=int(index)
    )
else:
    cluster = {"worker": addresses.split(",")}
    task = {"type": "worker", "index": int(index)}
    os.environ["TF_CONFIG"] = json.dumps({"cluster": cluster, "task": task})
    devices = distribution.setup()
with workdirs.lock(folder, devices):
    try:
        with workdirs.lock(folder, devices):
            print("held twice")
    except ValueError as error:
        print(error)
    with distribution.preemption(devices) as must_stop:
        calls = 0
        while not (number := must_stop()):
            calls += 1
            if calls == 5 and not devices.is_main:
                os.kill(os.getpid(), signal.SIGINT)
    print(f"stopped at call {calls} by signal {int(number)}", flush=True)
