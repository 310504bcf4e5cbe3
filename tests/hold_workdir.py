"""One of two processes of a run that holds a workdir, until Ctrl-C."""

import json
import os
import signal

import keras

from keras_vit import distribution
from recipes import workdir as workdirs


def main(folder, addresses, index):
    if keras.backend.backend() == "jax":
        devices = distribution.setup(
            coordinator=addresses[0], num_processes=2, process_id=index
        )
    else:
        cluster = {"worker": addresses}
        task = {"type": "worker", "index": index}
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
