"""A bad wire between two interfaces, for kernels without netem: python wire.py NEAR FAR SECONDS LOSS. What comes in at
NEAR leaves at FAR so many seconds later, unless it is lost; the way back is a good one."""

import heapq
import itertools
import random
import select
import socket
import sys
import time

SOL_PACKET, PACKET_VNET_HDR = 263, 15
"""With each frame comes what the kernel has left to a network card: checksums, and to split it."""
EVERYTHING = 3
OURS = 4
"""The type of what this process itself has sent."""


def end_of(interface: str) -> socket.socket:
    end = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(EVERYTHING))
    end.setsockopt(SOL_PACKET, PACKET_VNET_HDR, 1)
    end.bind((interface, EVERYTHING))
    return end


def main(near_name: str, far_name: str, delay: float, loss: float) -> None:
    near, far = end_of(near_name), end_of(far_name)
    chance, number = random.Random(1), itertools.count()
    under_way: list[tuple[float, int, bytes]] = []
    print("ready", flush=True)
    while True:
        wait = max(0.0, under_way[0][0] - time.monotonic()) if under_way else None
        for end in select.select([near, far], [], [], wait)[0]:
            frame, (_, _, kind, *_) = end.recvfrom(1 << 17)
            if kind == OURS:
                continue
            if end is far:
                near.send(frame)
            elif chance.random() >= loss:
                heapq.heappush(under_way, (time.monotonic() + delay, next(number), frame))
        while under_way and under_way[0][0] <= time.monotonic():
            far.send(heapq.heappop(under_way)[2])


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]), float(sys.argv[4]))
