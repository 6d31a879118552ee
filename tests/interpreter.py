"""The supernet run in the slow, obvious way: no selection, no folding, no graph building. What the fast way must
equal."""

import torch

from pymoo_stitch.network import INPUT, Batch, Device, Ref, Weight, lookup, substitute


def interpret(supernet, x, images):
    """The output for images, and which variables were looked at on the way."""
    looked_at = set()
    networks = {network.name: network for network in supernet.networks}

    def raw(network, name):
        if name == INPUT:
            return images
        node = next(node for node in networks[network].nodes if node.name == name)

        def value(argument):
            match argument:
                case Ref(source):
                    return read(network, source)
                case Weight(key):
                    return networks[network].weights[key]
                case Batch(multiple):
                    return multiple * len(images)
                case Device():
                    return images.device
            return argument

        return lookup(node.op)(*substitute(node.args, value), **substitute(node.kwargs, value))

    memory = {}

    def read(network, name):
        """What consumers see: the first link arriving there whose variable is 1, else the original."""
        if (network, name) not in memory:
            for variable, link in enumerate(supernet.links):
                if (link.target.network, link.target.name) == (network, name):
                    looked_at.add(variable)
                    if x[variable]:
                        source = raw(link.source.network, link.source.name)
                        memory[network, name] = supernet.stitches[link.stitch](source)
                        break
            else:
                memory[network, name] = raw(network, name)
        return memory[network, name]

    choices = [[network] for network in supernet.networks[1:]] + [list(supernet.networks)]
    chosen = [supernet.networks[0]]
    for variable, choice in enumerate(choices, len(supernet.links)):
        looked_at.add(variable)
        if x[variable]:
            chosen = choice
            break
    with torch.no_grad():
        outputs = [raw(network.name, network.output) for network in chosen]
        return sum(outputs[1:], start=outputs[0]) / len(outputs) if len(outputs) > 1 else outputs[0], looked_at
