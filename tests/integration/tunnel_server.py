"""The program of a task that is connected to: what a connection gets is in its first line."""

import hashlib
import os
import socketserver


class Answers(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        word, _, argument = self.rfile.readline().decode().strip().partition(" ")
        if word == "digest":
            digest = hashlib.sha256()
            while data := self.rfile.read1(1 << 16):
                digest.update(data)
            self.wfile.write(digest.hexdigest().encode())
        elif word == "end-then-read":
            self.wfile.write(b"ends")
            self.request.shutdown(1)
            print(self.rfile.read().decode(), flush=True)
        elif word == "send":
            for _ in range(int(argument) >> 16):
                self.wfile.write(bytes(1 << 16))
        elif word == "token":
            self.wfile.write(b"welcome" if argument == os.environ["JUPYTER_TOKEN"] else b"no")
        else:
            while data := self.rfile.read1(1 << 16):
                self.wfile.write(data)


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 128


with Server(("127.0.0.1", int(os.environ["IRIS_PORT_WEB"])), Answers) as server:
    print("listens", flush=True)
    server.serve_forever()
