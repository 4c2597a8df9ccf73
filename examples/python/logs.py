"""Follow what an instance writes until a line says the word, and say how its machine came up.

GPUHERD_API_KEY=... python3 logs.py NAME [WORD]
"""

from __future__ import annotations

import sys
from contextlib import closing

from gpuherd.client.client_errors import GpuherdError
from gpuherd.client.sync_client import Gpuherd


def main(name: str, word: str = "step") -> None:
    with Gpuherd() as herd:
        boot = b"".join(herd.instances.logs(name, source="system")).decode(errors="replace")
        print(*boot.splitlines()[-3:], sep="\n")
        rest = ""
        with closing(herd.instances.logs(name, follow=True)) as pieces:
            for piece in pieces:
                *lines, rest = (rest + piece.decode(errors="replace")).split("\n")
                for line in lines:
                    print(line)
                    if word in line:
                        return


if __name__ == "__main__":
    try:
        main(*sys.argv[1:3])
    except GpuherdError as error:
        sys.exit(str(error))
