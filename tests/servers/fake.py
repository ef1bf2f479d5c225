"""The fake for Python, at the port of its argument."""

import sys

from fakeredis import TcpFakeServer

TcpFakeServer(("127.0.0.1", int(sys.argv[1]))).serve_forever()
