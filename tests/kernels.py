"""Kernels of notebooks forked from the server that forks the tests' scripts (`processes`): none has
to import torch again, nor has a server of its own for the runs that its notebook trains."""

import os
import threading
import time
from contextlib import contextmanager
from unittest.mock import patch

from jupyter_client.provisioning import local_provisioner
from processes import CONTEXT, run_script, server_address, share_server

from spnb.train.server import _end_with_parent

LAUNCHER = "ipykernel_launcher"


class Forked:
    """A forked kernel with what Jupyter asks of a `subprocess.Popen`."""

    stdin = stdout = stderr = None

    def __init__(self, process):
        self.process, self.pid = process, process.pid
        while os.getpgid(self.pid) != self.pid:  # signals go to its group, which is ours before
            time.sleep(0.01)

    def poll(self):
        return self.process.exitcode

    def wait(self):
        self.process.join()
        return self.process.exitcode

    def send_signal(self, number):
        os.kill(self.pid, number)


@contextmanager
def forked_kernels():
    """Kernels that start in this block are forked."""
    with patch.object(local_provisioner, "launch_kernel", _launch):
        yield


def _launch(command, env, cwd=None, **_):
    environment = {name: value for name, value in env.items() if name != "JPY_PARENT_PID"}
    arguments = command[command.index(LAUNCHER) + 1 :]
    place = cwd or os.getcwd(), server_address()
    process = CONTEXT.Process(target=_serve, args=(arguments, environment, *place))
    process.start()
    return Forked(process)


def _serve(arguments, environment, folder, server):
    os.setsid()
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    share_server(server)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    run_script(LAUNCHER, arguments)
