"""A program without an adapter: one line in, an answer block out. Its prompt is ``ask> ``."""

import sys
import time


def main() -> None:
    while True:
        sys.stdout.write("ask> ")
        sys.stdout.flush()
        line = sys.stdin.readline()
        if not line:
            return
        words = line.split()
        print("... thinking", flush=True)
        time.sleep(float(words[1]) if len(words) > 1 and words[0] == "work" else 2.5)
        if "fail" in words:
            print("service unavailable: try again later", flush=True)
        elif "quota" in words:
            print("quota is used up until tomorrow", flush=True)
        else:
            print(f"= you said {line.strip()}", flush=True)


main()
