"""`slinky demo`: the bridge's story on real nodes, with a live view, and a picture of it at the end.

`command` brings everything up and down, `story` does and checks, `watching` hears what both servers tell, `lives` makes of it what each pod and job did, `board` and `timeline` draw that (in a terminal, as SVG), `show` speaks to whoever looks on.
"""

from slinky.cli.demo.command import demo

__all__ = ["demo"]
