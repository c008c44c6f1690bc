"""Operator graphs of convolutional networks from the block structure of their papers: Inception-v3 (Szegedy et al.
2016), AmoebaNet-D (Real et al. 2019, in the form of GPipe, Huang et al. 2019) and WaveNet (van den Oord et al. 2016).

Nothing is computed: each layer adds a node with its FLOPs (two for a multiplication with its addition), the bytes of
its output in single precision and of its weights. Batch normalisation and ReLU are parts of their convolutions, which
save the output before them. Parameter counts are tested against the published ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

from headwise.placement.graph import Node, OperatorGraph

BYTES = 4  # of a number


@dataclass(frozen=True)
class Map:
    """The output of a layer: its node, channels, rows and columns of one example."""

    node: str
    channels: int
    rows: int
    columns: int

    @property
    def size(self) -> int:
        return self.channels * self.rows * self.columns


class Network:
    """Layers of a network for a batch of `batch` examples, added one after the other."""

    def __init__(self, batch: int):
        self.batch, self.nodes = batch, list[Node]()

    def add(
        self, op: str, inputs: Sequence[Map], shape: tuple[int, int, int], flops: int, weights: int = 0, saved: int = 0
    ) -> Map:
        """A layer by the FLOPs of one example and its number of weights; `saved` are numbers of one example."""
        name, size = f"{op}-{len(self.nodes)}", prod(shape)
        self.nodes.append(
            Node(
                name, op, self.batch * flops, BYTES * self.batch * size, BYTES * weights,
                BYTES * self.batch * saved, tuple(dict.fromkeys(each.node for each in inputs)),
            )
        )  # fmt: skip
        return Map(name, *shape)

    def input(self, channels: int, rows: int, columns: int) -> Map:
        return self.add("input", (), (channels, rows, columns), 0)

    def conv(
        self, x: Map, channels: int, kernel: tuple[int, int] | int = 1, stride: tuple[int, int] | int = 1,
        same: bool = True, norm: bool = True,
    ) -> Map:  # fmt: skip
        """A convolution with batch normalisation and ReLU, or with a bias alone."""
        kernel = kernel if isinstance(kernel, tuple) else (kernel, kernel)
        steps = stride if isinstance(stride, tuple) else (stride, stride)
        lost = (0, 0) if same else (kernel[0] - 1, kernel[1] - 1)
        rows, columns = (
            -(-(side - less) // step) for side, less, step in zip((x.rows, x.columns), lost, steps, strict=True)
        )
        products = x.channels * channels * prod(kernel)
        size = channels * rows * columns
        flops = 2 * products * rows * columns + (4 * size if norm else size)
        weights = products + (2 * channels if norm else channels)
        return self.add("conv", (x,), (channels, rows, columns), flops, weights, size if norm else 0)

    def pool(self, x: Map, kernel: int = 3, stride: int = 1, same: bool = True) -> Map:
        lost = 0 if same else kernel - 1
        rows, columns = (-(-(side - lost) // stride) for side in (x.rows, x.columns))
        shape = (x.channels, rows, columns)
        return self.add("pool", (x,), shape, kernel**2 * prod(shape))

    def concat(self, *parts: Map) -> Map:
        shape = (sum(part.channels for part in parts), parts[0].rows, parts[0].columns)
        return self.add("concat", parts, shape, 0)

    def sum(self, one: Map, two: Map) -> Map:
        return self.add("add", (one, two), (one.channels, one.rows, one.columns), one.size)

    def classify(self, x: Map, classes: int) -> Map:
        """Mean over rows and columns, a linear layer, the loss."""
        x = self.add("mean", (x,), (x.channels, 1, 1), x.size)
        weights = (x.channels + 1) * classes
        x = self.add("linear", (x,), (classes, 1, 1), 2 * weights, weights)
        return self.add("loss", (x,), (1, 1, 1), 5 * classes)

    def build(self, name: str, source: str, devices: int) -> OperatorGraph:
        return OperatorGraph.from_nodes(name, self.nodes, source, devices)


def build_inception(batch: int = 32, classes: int = 1000) -> Network:
    """Inception-v3 without the auxiliary classifier: 23,834,568 parameters."""
    net = Network(batch)
    conv = net.conv
    x = conv(conv(conv(net.input(3, 299, 299), 32, 3, 2, same=False), 32, 3, same=False), 64, 3)
    x = net.pool(conv(conv(net.pool(x, 3, 2, same=False), 80), 192, 3, same=False), 3, 2, same=False)
    for pooled in (32, 64, 64):  # figure 5
        x = net.concat(
            conv(x, 64), conv(conv(x, 48), 64, 5), conv(conv(conv(x, 64), 96, 3), 96, 3), conv(net.pool(x), pooled)
        )
    x = net.concat(
        conv(x, 384, 3, 2, same=False),
        conv(conv(conv(x, 64), 96, 3), 96, 3, 2, same=False),
        net.pool(x, 3, 2, same=False),
    )
    for width in (128, 160, 160, 192):  # figure 6, n = 7
        two = conv(conv(conv(x, width), width, (1, 7)), 192, (7, 1))
        three = conv(conv(conv(conv(conv(x, width), width, (7, 1)), width, (1, 7)), width, (7, 1)), 192, (1, 7))
        x = net.concat(conv(x, 192), two, three, conv(net.pool(x), 192))
    one = conv(conv(x, 192), 320, 3, 2, same=False)
    two = conv(conv(conv(conv(x, 192), 192, (1, 7)), 192, (7, 1)), 192, 3, 2, same=False)
    x = net.concat(one, two, net.pool(x, 3, 2, same=False))
    for _ in range(2):  # figure 7
        two, three = conv(x, 384), conv(conv(x, 448), 384, 3)
        split = [conv(part, 384, kernel) for part in (two, three) for kernel in ((1, 3), (3, 1))]
        x = net.concat(conv(x, 320), *split, conv(net.pool(x), 192))
    net.classify(x, classes)
    return net


Cell = tuple[tuple[tuple[str, int], ...], tuple[int, ...]]  # operations with the states that they read, states joined

# Real et al. 2019, AmoebaNet-D; pairs of operations are added. The normal cell joins the states that the released code
# joins, with which GPipe's parameter counts come out, not those of the paper's figure.
NORMAL: Cell = (
    (("conv1", 1), ("pool3", 1), ("none", 1), ("conv7", 0), ("conv1", 0), ("conv7", 0), ("pool3", 2), ("none", 2),
     ("pool3", 1), ("conv1", 5)), (0, 3, 4, 6),
)  # fmt: skip
REDUCTION: Cell = (
    (("pool2", 0), ("pool3", 0), ("none", 2), ("conv3", 1), ("conv7", 2), ("pool3", 2), ("none", 3), ("pool2", 1),
     ("pool3", 2), ("conv1", 3)), (4, 5, 6),
)  # fmt: skip


def build_amoebanet(batch: int = 32, cells: int = 18, filters: int = 208, classes: int = 1000) -> Network:
    """AmoebaNet-D (cells, filters) for images of 224 x 224."""
    net = Network(batch)
    channels = filters // 4
    x = net.conv(net.input(3, 224, 224), channels, 3, 2)
    before, halved = x, False

    def add_cell(cell: Cell) -> None:
        nonlocal before, x, halved
        before, x = x, build_cell(net, cell, x, before, channels, halved)
        halved = cell is REDUCTION

    for normal_cells in (0, cells // 3, cells // 3, cells // 3):  # after each reduction; the first two are the stem's
        channels *= 2
        add_cell(REDUCTION)
        for _ in range(normal_cells):
            add_cell(NORMAL)
    net.classify(x, classes)
    return net


def build_cell(net: Network, cell: Cell, x: Map, before: Map, channels: int, halved: bool) -> Map:
    """A cell reads the outputs of the two cells before it."""
    operations, joined = cell
    first = net.conv(x, channels)
    if halved:  # both halves at stride 2 (factorised reduction)
        second = net.concat(*(net.conv(before, channels // 2, 1, 2) for _ in range(2)))
    else:
        second = before if before.channels == channels else net.conv(before, channels)
    states = [first, second]
    for (one, first_state), (two, second_state) in zip(operations[::2], operations[1::2], strict=True):
        made = [
            OPERATIONS[name](net, states[number], channels, 2 if cell is REDUCTION and number < 2 else 1)
            for name, number in ((one, first_state), (two, second_state))
        ]
        states.append(net.sum(*made))
    return net.concat(*(states[number] for number in joined))


def factorise(net: Network, x: Map, channels: int, stride: int) -> Map:
    """1 x 7 and 7 x 1 at a quarter of the channels."""
    x = net.conv(net.conv(x, channels // 4), channels // 4, (1, 7), (1, stride))
    return net.conv(net.conv(x, channels // 4, (7, 1), (stride, 1)), channels)


def narrow(net: Network, x: Map, channels: int, stride: int) -> Map:
    """3 x 3 at a quarter of the channels (bottleneck)."""
    return net.conv(net.conv(net.conv(x, channels // 4), channels // 4, 3, stride), channels)


OPERATIONS: dict[str, Callable[[Network, Map, int, int], Map]] = {
    "none": lambda net, x, channels, stride: x if stride == 1 else net.conv(x, channels, 1, stride),
    "conv1": lambda net, x, channels, stride: net.conv(x, channels, 1, stride),
    "conv3": narrow,
    "conv7": factorise,
    "pool2": lambda net, x, channels, stride: net.pool(x, 2, stride),
    "pool3": lambda net, x, channels, stride: net.pool(x, 3, stride),
}


def build_wavenet(
    batch: int = 8, stacks: int = 2, layers: int = 9, length: int = 8000, width: int = 128, skip: int = 256
) -> Network:
    """WaveNet: stacks of layers with dilations 1, 2, 4, ...; each has a gated convolution of two samples, a 1 x 1 to
    the next layer with a residual connection and a 1 x 1 to the sum of skips. 256 levels in and out (mu-law)."""
    net = Network(batch)
    x = net.conv(net.input(256, 1, length), width, norm=False)
    skips = list[Map]()
    for _ in range(stacks * layers):  # dilations change neither costs nor sizes
        halves = [net.conv(x, width, (1, 2), norm=False) for _ in range(2)]
        gated = net.add("gate", halves, (width, 1, length), 8 * width * length)
        skips.append(net.conv(gated, skip, norm=False))
        x = net.sum(x, net.conv(gated, width, norm=False))
    total = skips[0]
    for other in skips[1:]:
        total = net.sum(total, other)
    x = net.conv(net.conv(total, 256, norm=False), 256, norm=False)
    net.add("loss", (x,), (1, 1, 1), 5 * x.size)
    return net
