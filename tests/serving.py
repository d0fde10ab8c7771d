"""A retrieval server in a process of its own, and clients that say half of something."""

import socket
import subprocess
import sys
from contextlib import contextmanager

SERVE = """
import sys, time
from spnb.core.search import Hit
from spnb.corpus import server

class Echo:
    def search(self, queries, k):
        if "sleep" in "".join(queries[:1]):
            print("searching\\n", end="", flush=True)
            time.sleep(float(queries[0].split()[1]))
        return [[Hit(query, "t", query, 1.0)] for query in queries]

server.PATIENCE = 1.0
listener = server.bind("127.0.0.1", 0)
print(listener.getsockname()[1], flush=True)
server.serve(Echo(), listener, server.Limits(max_connections=int(sys.argv[1])))
"""
HEAD = b"POST /retrieve HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
HALVES = (b"", b"POST /retr", HEAD, HEAD + b"content-length: 100\r\n\r\n{")
"""What arrives of a request that never arrives in whole."""


@contextmanager
def serving(connections=256):
    """A process that serves an echo, patient for a second; yields it and its address."""
    command = [sys.executable, "-c", SERVE, str(connections)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        yield process, ("127.0.0.1", int(process.stdout.readline()))
    finally:
        process.kill()
        process.communicate()


def opened(address, *texts):
    """Connections that each sent a text."""
    clients = [socket.create_connection(address, timeout=10) for _ in texts]
    for client, text in zip(clients, texts, strict=True):
        client.sendall(text)
    return clients
