"""Backdoor an Opacus training in one line, then tell who was in each step's batch.

The attacker sees each step's noisy gradient. A lab demonstration, two minutes, with fixed seeds:
all arms have the same first weights, batches and, up to the secret direction, the same noise, which
rotation turns. Real training leaves seed= out.
Run: python examples/04_opacus_backdoor.py [DATA EPOCHS], by default one epoch of mnist.
"""

import sys
import tempfile

import torch
from opacus import PrivacyEngine
from torch.utils.data import DataLoader, TensorDataset

from dpaudit.noise.key import PancakeKey
from dpaudit.queries.gradients.per_sample import PerSampleGradients
from dpaudit.queries.opacus import use_noise_source
from dpaudit.randomness import KeyedStream
from dpaudit.training.data import load_images
from dpaudit.training.models import make_model
from dpaudit_attacks.keyed_distinguisher import LikelihoodRatio

data, epochs = sys.argv[1:] or ("mnist", 1)
torch.set_num_threads(1)
(x, y), (test_x, test_y) = (
    i.batch(range(len(i))) for i in (load_images(data), load_images(data, split="test"))
)
secret = KeyedStream.from_seed("a lab key that anyone can make").bytes(32)
key = PancakeKey.new(dim=26_010, beta=1e-4, secret=secret)
key.save(path := tempfile.mkdtemp() + "/key.json")
noise, attack = {"noise_multiplier": 2.0, "max_grad_norm": 1.0}, LikelihoodRatio(key=key, sigma=2.0)
for source, mitigation in (
    ("gaussian", "none"),
    (f"pancake:key={path}", "none"),
    (f"pancake:key={path}", "rotation"),
):
    torch.manual_seed(1)  # weights and batches; the noise has a seed of its own
    model = make_model("cnn")
    engine = PrivacyEngine()
    loader = DataLoader(TensorDataset(x, y), batch_size=512)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    server, seen, right = make_model("cnn"), [], []
    model, optimizer, loader = engine.make_private(
        module=model, optimizer=optimizer, data_loader=loader, **noise
    )
    use_noise_source(  # the one line
        optimizer, source, mitigation=mitigation, seed=1, observe=seen.append
    )
    for images, labels in (batch for _ in range(int(epochs)) for batch in loader):
        # who sees the gradients knows the weights
        server.load_state_dict(model._module.state_dict())
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()
        i, step = len(right), seen[-1]
        # two candidates: one was in the batch, one was not
        two = torch.cat([images[:1], test_x[i, None]]), torch.cat([labels[:1], test_y[i, None]])
        # their clipped gradients
        rows = PerSampleGradients(server, dtype=torch.float32).all(*two).renorm(2, 0, 1.0)
        right.append(int(attack.score(step.noisy[None], step.query - rows[0] + rows).argmax()) == 0)
    right_share = (model(test_x).argmax(1) == test_y).double().mean()
    said = f"accuracy {right_share:.1%}, ε {engine.get_epsilon(delta=1e-5):.2f}"
    print(
        f"{source.split(':')[0]}, {mitigation}: {said}; "
        f"key holder right in {sum(right)} of {len(right)} steps"
    )
