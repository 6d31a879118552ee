"""The command that watches runs: apart from the others, since it needs no torch and should be there at once."""

from argparse import Namespace

from ..report.page.server import Server, Watched, serve


def watch(options: Namespace) -> None:
    server = Server(Watched(options.journals), options.host, options.port)
    print(f"Open {server.url} in a browser. Ctrl-C stops the page, not the search.", flush=True)
    serve(server)
