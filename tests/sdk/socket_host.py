"""Passes its standard input and output to a Unix socket, for hosts that can only start a command: socket_host.py PATH"""
import os
import socket
import sys
import threading

connection = socket.socket(socket.AF_UNIX)
connection.connect(sys.argv[1])


def send():
    while data := os.read(0, 65536):
        connection.sendall(data)
    connection.shutdown(socket.SHUT_WR)


threading.Thread(target=send, daemon=True).start()
while data := connection.recv(65536):
    view = memoryview(data)
    while view:
        view = view[os.write(1, view):]
