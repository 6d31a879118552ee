"""A pool of fragments: networks composed of pieces of trained ones, without training, and what they predict.

python examples/fragment_pool.py
python examples/fragment_pool.py alexnet densenet121 mobilenet_v3_small resnet50 vgg16 --pretrained --images folder
"""

import argparse
from itertools import chain as chain_iterables
from itertools import islice

import torch
import torchvision
from torchvision.datasets import ImageFolder
from torchvision.transforms import v2

from pymoo_stitch import Network, Pool, search_chains

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("models", nargs="*", default=["squeezenet1_1", "resnet18"], help="names of torchvision models")
parser.add_argument("--pretrained", action="store_true", help="download trained weights (else they are random)")
parser.add_argument("--images", metavar="FOLDER", help="images by class, 32 of which are used (default: noise)")
parser.add_argument("--size", type=int, default=224, help="height and width of the images (default: %(default)s)")
parser.add_argument("--chains", type=int, default=6, help="how many from each network (default: %(default)s)")
arguments = parser.parse_args()
torch.manual_seed(1)

images = torch.rand(32, 3, arguments.size, arguments.size)  # in [0, 1], without labels
if arguments.images:
    crop = [v2.Resize(256), v2.CenterCrop(arguments.size), v2.ToImage(), v2.ToDtype(torch.float32, scale=True)]
    folder = ImageFolder(arguments.images, v2.Compose(crop))
    images = torch.stack([folder[i][0] for i in torch.randperm(len(folder))[:32]])

normalization = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
networks = []
for name in arguments.models:
    module = torchvision.models.get_model(name, weights="DEFAULT" if arguments.pretrained else None)
    networks.append(Network.from_module(module, images[:1], name=name, normalize=normalization))

pool = Pool(networks, images)
print(pool)
for name in arguments.models:
    parts = pool[name]
    parameters = sum(part.parameters for part in parts)
    print(f"{name}: {len(parts)} fragments, {parameters:,} parameters with batch norms folded")

print("\nscore   multiply-adds           fused  chain")
starts = [pool[name][0] for name in arguments.models]
searches = [islice(search_chains(pool, threshold=0.2, start=start), arguments.chains) for start in starts]
for chain, score in chain_iterables(*searches):
    fused = chain.fused()  # a network of its own, its stitches part of the layers after them
    print(f"{score:.3f}  {chain.cost:14,}  {fused.cost:14,}  {' '.join(map(str, chain.fragments))}")

with torch.inference_mode():
    predicted = chain.module()(images).argmax(1)
print(f"\nThe last one predicts the classes {predicted.tolist()}")
print(f"It differs from its fused form by {fused.difference:.1g} at most.")
