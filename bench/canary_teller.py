"""A member's program for ``canary.py``: a line ``tell NAME`` prints that variable, another line is answered with "ok".

It prints each value a second time with a change of colour in the middle of it, and in a frame that it wraps into, as
programs do.
"""

import os
import sys


def main() -> None:
    while True:
        sys.stdout.write("ask> ")
        sys.stdout.flush()
        line = sys.stdin.readline()
        if not line:
            return
        word, *names = line.split() or [""]
        print("... thinking", flush=True)
        for name in names if word == "tell" else ():
            value = os.environ[name]
            middle = len(value) // 2
            print(f"= it is {value}")
            print(f"  or \033[31m{value[:middle]}\033[32m{value[middle:]}\033[0m")
            print(f"  │ {value[:middle]} │\n  │ {value[middle:].ljust(middle)} │")
        if word != "tell":
            print("= ok")
        sys.stdout.flush()


main()
