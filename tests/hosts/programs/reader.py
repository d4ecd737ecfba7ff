"""Ask for bracketed paste and write down every byte that is typed: ``reader.py PATH``."""

import os
import sys
import tty

tty.setraw(0)
with open(sys.argv[1], "wb", buffering=0) as file:
    os.write(1, b"\033[?2004hready\r\n")
    while data := os.read(0, 65536):
        file.write(data)
