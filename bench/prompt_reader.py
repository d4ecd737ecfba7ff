"""A program with an input line, for ``prompts.py``: it writes down what was pasted, and how often it was submitted.

    prompt_reader.py PATH

It asks for bracketed paste and reads the terminal raw. What comes between the brackets is a draft; a CR outside of them
submits it. Each submission is one line of JSON in PATH: the draft's bytes in hexadecimal, and the bytes outside of the
brackets since the last one. A draft shows as ``[Pasted N]``, as agents show long ones, so that nothing that is in it
draws the screen.
"""

import json
import os
import sys
import tty

BEGIN, END = b"\033[200~", b"\033[201~"


def draw(text: str) -> None:
    os.write(1, b"\033[H\033[2J" + text.encode())


def main(path: str) -> None:
    tty.setraw(0)
    os.write(1, b"\033[?2004h")
    taken = 0
    draw("took 0\r\n> ")
    held, draft, outside = b"", b"", b""
    with open(path, "w", encoding="ascii", buffering=1) as out:
        while data := os.read(0, 65536):
            held += data
            while held:
                if held.startswith(BEGIN):
                    end = held.find(END)
                    if end < 0:
                        break
                    draft += held[len(BEGIN) : end]
                    held = held[end + len(END) :]
                    draw(f"took {taken}\r\n> [Pasted {len(draft)}]")
                elif BEGIN.startswith(held):
                    break  # the rest of the bracket is on its way
                else:
                    key, held = held[:1], held[1:]
                    outside += key
                    if key == b"\r":
                        taken += 1
                        out.write(json.dumps([draft.hex(), outside.hex()]) + "\n")
                        draft, outside = b"", b""
                        draw(f"took {taken}\r\n> ")


main(sys.argv[1])
