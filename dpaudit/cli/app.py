"""The commands, their options and their help. Each command imports what it needs when it runs, so that help is quick."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from dpaudit.cli import completion
from dpaudit.cli.plugin_commands import AllCommands, group_of
from dpaudit.cli.runs import runs_app

__all__ = ["app"]

Format = Literal["text", "json"]
FormatOption = Annotated[Format, typer.Option("--format", help="text for people, json (one document) for programs.")]

DeviceOption = Annotated[Literal["cpu", "cuda"], typer.Option(help="Where tensors live.")]
DataRootOption = Annotated[
    Path | None,
    typer.Option(
        help="Folder with mnist.npz, cifar10.npz, weights/…; if not given, DPAUDIT_DATA, else data is downloaded.",
        show_default=False,
    ),
]
OutOption = Annotated[
    Path | None, typer.Option(help="Also write report.html and result.json here.", show_default=False)
]
AlsoOption = Annotated[
    str | None,
    typer.Option(
        help="Also write for other programs: junit, sarif, markdown, with commas; needs --out.", show_default=False
    ),
]
SandboxOption = Annotated[
    Literal["full", "require", "network", "none"] | None,
    typer.Option(
        help="How foreign code is held: full (as far as this kernel can), require (full or nothing, exit 3), network (full, but with the network), none (limits only).",
        show_default="DPAUDIT_SANDBOX, else full",
    ),
]
VisibleOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="PATH",
        help="A file or folder that the sampler also needs; shown read-only. The home directory and the working tree are hidden. Repeatable.",
        show_default=False,
    ),
]
PassEnvOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        help="An environment variable to pass on; others are kept back, but for PATH, LANG, OMP_* and the like. Repeatable.",
        show_default=False,
    ),
]
SeedOption = Annotated[
    str | None,
    typer.Option(
        help="For the auditor's own randomness and registered sources; fresh if not given.", show_default=False
    ),
]

app = typer.Typer(
    name="dpaudit",
    cls=AllCommands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    help=(
        "Before you trust someone else's noise: audit closed differential-privacy samplers, see what a secret key "
        "would read from them, and check the defences.\n\n"
        "Start with [bold]dpaudit demo[/bold], then [bold]dpaudit audit[/bold] your own sampler.\n\n"
        "Exit codes: 0 no finding, 1 finding, 2 usage, 3 inconclusive, 4 internal error, or the output cannot be written."
    ),
)
key_app = typer.Typer(no_args_is_help=True, help="Make and look at pancake keys (lab specimens; files of mode 0600).")
app.add_typer(key_app, name="key")
app.add_typer(
    typer.Typer(
        cls=group_of("services"),
        no_args_is_help=True,
        help=(
            "Mitigations with several parties, each a process of its own: two servers, secure aggregation.\n\n"
            "Start with [bold]dpaudit serve init[/bold], which makes the certificates they know each other by."
        ),
    ),
    name="serve",
)
deployment_app = typer.Typer(no_args_is_help=True, help="Whole systems, audited from their own files.")
app.add_typer(deployment_app, name="deployment")
verify_app = typer.Typer(no_args_is_help=True, help="Check offline what a protocol left behind.")
app.add_typer(verify_app, name="verify")
app.add_typer(runs_app, name="runs")


def _version(wanted: bool) -> None:
    if wanted:
        from dpaudit import __version__

        typer.echo(f"dpaudit {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    del version


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for report.html and the results.")] = Path("dpaudit-demo"),
    also: AlsoOption = None,
    output: FormatOption = "text",
) -> None:
    """The whole story on real data, offline, in a minute.

    One DP histogram of 3,143 US counties from four samplers: honest, backdoored, and the backdoor behind two defences.
    """
    from dpaudit.cli import experiments

    experiments.demo(out, output, also=also)


@app.command()
def audit(
    sampler: Annotated[
        str,
        typer.Argument(help="What to audit; see below.", show_default=False, autocompletion=completion.samplers),
    ],
    claim: Annotated[
        str | None,
        typer.Option(
            help="gaussian:sigma=1 | laplace:scale=1 | discrete-gaussian:sigma=10 | discrete-laplace:scale=10; a library's mechanism says its own.",
            show_default=False,
            autocompletion=completion.claims,
        ),
    ] = None,
    dim: Annotated[
        int | None, typer.Option(help="Values a vector; without it the auditor chooses.", show_default=False)
    ] = None,
    samples: Annotated[float, typer.Option(help="Values to draw in all.", show_default="1e7")] = 1e7,
    alpha: Annotated[
        float, typer.Option(help="Chance of a finding against an honest sampler, all tests together.")
    ] = 0.01,
    time_limit: Annotated[
        float | None,
        typer.Option(
            help="Seconds for the whole audit; the search for hidden directions takes what the values leave of it.",
            show_default="600 for the values, 15 for the search",
        ),
    ] = None,
    tests: Annotated[
        str | None,
        typer.Option(
            help="Only these tests, e.g. moments,tails; see dpaudit list tests.",
            show_default=False,
            autocompletion=completion.tests,
        ),
    ] = None,
    sequential: Annotated[
        bool, typer.Option("--sequential", help="Stop at the first clear finding; valid whenever it stops.")
    ] = False,
    bits: Annotated[
        Path | None,
        typer.Option(
            help="File or FIFO that gets 16 uniform bits a value, e.g. for PractRand: RNG_test stdin16.",
            show_default=False,
        ),
    ] = None,
    seed: SeedOption = None,
    dtype: Annotated[Literal["f64", "f32"], typer.Option(help="What command:, http: and .bin write.")] = "f64",
    text: Annotated[bool, typer.Option("--text", help="command: prints decimal numbers.")] = False,
    mitigation: Annotated[
        str | None,
        typer.Option(
            help="Audit a registered source behind this mitigation, e.g. rotation or smoothing:tau=0.05.",
            show_default=False,
            autocompletion=completion.mitigations,
        ),
    ] = None,
    sandbox: SandboxOption = None,
    visible: VisibleOption = None,
    pass_env: PassEnvOption = None,
    out: OutOption = None,
    also: AlsoOption = None,
    output: FormatOption = "text",
) -> None:
    """Is this closed noise sampler what it claims to be?

    [bold]SAMPLER[/bold] is one of

    python:MODULE:FUNCTION — f(n, d) or f(size=(n, d)); MODULE may be a ./file.py

    command:'./sampler {n} {d}' — little-endian float64 on stdout (--dtype f32, --text)

    library:./libnoise.so:SYMBOL — void f(double *out, size_t n, size_t d)

    http://127.0.0.1:8000/noise — POST {"n", "d"}, raw little-endian float64 back (--dtype f32)

    file:samples.npy — also .npz .csv .parquet .bin

    LIB:MECHANISM[:opt=value,…] — as the library ships it: numpy scipy torch opacus opendp diffprivlib stdlib, e.g. numpy:laplace:scale=2

    NAME — a registered source with options as NAME:opt=value,… ; see dpaudit list sources

    Exit code 0: nothing contradicts the claim (and you are told what that cannot exclude). 1: a finding. 3: the sampler died,
    kept silent, or gave too little.

    Example: dpaudit audit library:./libnoise.so:gauss --claim gaussian:sigma=1
    """
    from dpaudit.cli import audits

    audits.audit(
        sampler,
        claim=claim,
        dim=dim,
        samples=samples,
        alpha=alpha,
        time_limit=time_limit,
        tests=tests.split(",") if tests is not None else None,
        sequential=sequential,
        bits=bits,
        seed=seed,
        dtype=dtype,
        text=text,
        mitigation=mitigation,
        out=out,
        also=also,
        output=output,
        sandbox=sandbox,
        visible=visible or (),
        pass_env=pass_env or (),
    )


@app.command()
def mechanism(
    name: Annotated[
        str,
        typer.Argument(
            metavar="MECHANISM",
            help="What to audit; see below.",
            show_default=False,
            autocompletion=completion.mechanisms,
        ),
    ],
    claim_epsilon: Annotated[float, typer.Option(help="The ε it claims.", show_default=False)],
    claim_delta: Annotated[float, typer.Option(help="The δ it claims.")] = 0.0,
    claim_mu: Annotated[
        float | None, typer.Option(help="Also judge a claim of μ-Gaussian DP.", show_default=False)
    ] = None,
    neighbours: Annotated[
        str | None,
        typer.Option(
            help="Query results to hide from each other: 0,1 or '0,0,0;1,0,0' or a.npy;b.npy", show_default=False
        ),
    ] = None,
    attack: Annotated[
        str | None,
        typer.Option(
            help="Look at releases as this attack does, with options as NAME:opt=value,…: see below.",
            show_default=False,
            autocompletion=completion.attacks,
        ),
    ] = None,
    samples: Annotated[float, typer.Option(help="Releases to draw at each neighbour.", show_default="2e5")] = 2e5,
    alpha: Annotated[float, typer.Option(help="Chance of a false finding, or of any bound being wrong.")] = 0.01,
    time_limit: Annotated[float, typer.Option(help="Seconds for the whole audit.")] = 600,
    seed: SeedOption = None,
    real_numbers: Annotated[
        bool, typer.Option("--real-numbers", help="What the last bits of releases show is reported, but is no finding.")
    ] = False,
    guesses: Annotated[
        int | None,
        typer.Option(
            help="scores: guesses to make, chosen beforehand; several numbers are tried if not given.",
            show_default=False,
        ),
    ] = None,
    sandbox: SandboxOption = None,
    visible: VisibleOption = None,
    pass_env: PassEnvOption = None,
    out: OutOption = None,
    also: AlsoOption = None,
    output: FormatOption = "text",
) -> None:
    """Is this whole mechanism as private as it claims to be?

    Draws releases at two neighbouring query results, learns from one half which events tell them apart, and counts
    these in the other half: a lower bound for ε at δ that holds with confidence 1 − α. Whatever tells them apart counts,
    the last bits of a release as well.

    [bold]MECHANISM[/bold] is one of

    LIB:MECH — a library's mechanism with options, e.g. numpy:laplace:scale=1, opendp:laplace:scale=1

    NAME — a registered source, which releases the value itself or is added to it, e.g. secure-gaussian:sigma=1

    python:MODULE:FUNCTION — f(value, n) -> n releases

    command:'./mechanism --value={value} {n}' — n releases as little-endian float64 on stdout

    scores:FILE — scores of canaries from one run: .csv or .npz with score and member (0 or 1, by fair coins)

    Exit code 0: nothing contradicts the claim. 1: a finding. 3: the mechanism died, kept silent, or gave too little.

    [bold]--attack[/bold] is one of

    reach, laplace-support, pair-inversion — which value can have led to a release, down to the last bit; all is counted

    bit-features, timing — learns from one half of the releases what tells the neighbours apart (timing: one call each, timed)

    sensitivity — brings the neighbours itself (leave --neighbours out)

    Example: dpaudit mechanism numpy:laplace:scale=1 --neighbours 0,1 --claim-epsilon 1

    Example: dpaudit mechanism numpy:legacy-normal --neighbours '0,0;1,1' --claim-epsilon 1 --attack pair-inversion:sampler=numpy-legacy
    """
    from dpaudit.cli import mechanisms

    mechanisms.mechanism(
        name,
        claim_epsilon=claim_epsilon,
        claim_delta=claim_delta,
        claim_mu=claim_mu,
        neighbours=neighbours,
        attack=attack,
        samples=samples,
        alpha=alpha,
        time_limit=time_limit,
        seed=seed,
        real_numbers=real_numbers,
        guesses=guesses,
        out=out,
        also=also,
        output=output,
        sandbox=sandbox,
        visible=visible or (),
        pass_env=pass_env or (),
    )


@app.command()
def attack(
    name: Annotated[
        str,
        typer.Argument(
            help="Attack with its options, e.g. likelihood-ratio:key=key.json,sigma=22.3",
            show_default=False,
            autocompletion=completion.attacks,
        ),
    ],
    releases: Annotated[
        Path, typer.Option(help=".npy of shape (t, d) or (d,): what was released.", show_default=False)
    ],
    candidates: Annotated[
        Path,
        typer.Option(help=".npy of shape (m, d) or (t, m, d): query results it may have been.", show_default=False),
    ],
    truth: Annotated[
        Path | None,
        typer.Option(help=".npy of t numbers in 0…m−1: which it was; then the success is counted.", show_default=False),
    ] = None,
    output: FormatOption = "text",
) -> None:
    """One attack on recorded releases: which of the candidates was it?

    With --truth, exit code 1 means that the attack is better than guessing (95 % interval).
    """
    from dpaudit.cli import attacks

    attacks.attack(name, releases=releases, candidates=candidates, truth=truth, output=output)


@app.command()
def run(
    experiment: Annotated[
        str,
        typer.Argument(
            help="A name from dpaudit list experiments, or a SPEC.toml.",
            show_default=False,
            autocompletion=completion.experiments,
        ),
    ],
    out: Annotated[
        Path | None, typer.Option(help="Folder for results; runs/NAME if not given.", show_default=False)
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with an interrupted run; finished cells are kept.")
    ] = False,
    trials: Annotated[
        int | None, typer.Option(help="Trials a cell, instead of the spec's.", show_default=False)
    ] = None,
    log: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME[:…]",
            help="Also tell a logger: jsonl:path=FILE, mlflow:uri=URL,experiment=NAME; repeatable.",
            show_default=False,
        ),
    ] = None,
    where: Annotated[
        str, typer.Option(help="local, or a Dask scheduler: tcp://host:8786 or tls://… (a network you trust).")
    ] = "local",
    jobs: Annotated[str, typer.Option(metavar="N|all", help="Processes on this machine; 1 is this one.")] = "1",
    device: DeviceOption = "cpu",
    data_root: DataRootOption = None,
    also: Annotated[
        str | None,
        typer.Option(
            help="Also write for other programs, into --out: junit, sarif, markdown, with commas.", show_default=False
        ),
    ] = None,
    output: FormatOption = "text",
) -> None:
    """Run an experiment: a grid of host × source × mitigation × attack.

    Finished cells are on disk at once; a cell that fails does not stop the others. The numbers do not depend on where
    cells run. Exit code 0 says that all have a result, whatever they found; 3 that some failed.
    """
    from dpaudit.cli import experiments

    experiments.run(
        experiment,
        out=out,
        resume=resume,
        trials=trials,
        where=where,
        jobs=jobs,
        device=device,
        data_root=data_root,
        output=output,
        log=log or (),
        also=also,
    )


@app.command()
def train(
    model: Annotated[
        str,
        typer.Argument(
            help="lenet5-tanh lenet5 cnn mlp (MNIST); resnet20 resnet56 vgg19-bn resnet50 mobilenet-v2 (CIFAR-10).",
            show_default=False,
        ),
    ],
    epochs: Annotated[
        int | None,
        typer.Option(help="Times through the data; the model's own number if not given.", show_default=False),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of weights, order, crops and dropout.")] = 0,
    device: DeviceOption = "cpu",
    data_root: DataRootOption = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="File to write, replaced if there; if not given, where experiments look.", show_default=False
        ),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with an interrupted training; finished epochs are kept.")
    ] = False,
    output: FormatOption = "text",
) -> None:
    """Train a network without privacy, to attack its gradients later, and measure its accuracy on the test images.

    Experiments with weights = "trained" read the checkpoint: MODEL.pt in the folder that DPAUDIT_CHECKPOINTS names, else in
    the user's cache. The MNIST networks take minutes of a CPU core (lenet5-tanh, 20 epochs: three) and are trained on the
    spot where they are missing; the CIFAR-10 networks want a GPU (--device cuda) and must be trained first, except resnet20
    and resnet56, whose published weights are used instead.

    Every finished epoch is on disk before the next begins. This is no private training: that is dpaudit run dpsgd-training.
    """
    from dpaudit.cli import training

    training.train(
        model, epochs=epochs, seed=seed, device=device, data_root=data_root, out=out, resume=resume, output=output
    )


@app.command()
def frontier(
    dim: Annotated[
        int | None, typer.Option(help="Values a vector; without it the auditor chooses.", show_default=False)
    ] = None,
    samples: Annotated[float, typer.Option(help="Values that the audit draws.", show_default="1e7")] = 1e7,
    seconds: Annotated[float, typer.Option(help="Seconds that the search for hidden directions has.")] = 15,
    table: Annotated[
        Path | None,
        typer.Option(
            help="Read the map from this folder of dpaudit run frontier, not from the package.", show_default=False
        ),
    ] = None,
    write: Annotated[
        Path | None,
        typer.Option(help="Also write the whole map as CSV, as the package carries it.", show_default=False),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Also write report.html (with the figure) and result.json here.", show_default=False),
    ] = None,
    calibrate: Annotated[
        bool, typer.Option("--calibrate", help="Propose smoothing for the pancakes that such an audit may miss.")
    ] = False,
    eta: Annotated[
        float | None,
        typer.Option(help="With --calibrate: how near the Gaussian smoothing is to come.", show_default="1e-6"),
    ] = None,
    output: FormatOption = "text",
) -> None:
    """The detectability map: which flaws an audit of so many values would have seen nine times in ten.

    What a pass cannot exclude comes from here. dpaudit run frontier measures it anew.

    With --calibrate it proposes how much smoothing covers the pancakes that such an audit may miss.

    Example: dpaudit frontier --dim 64 --samples 1e6 --seconds 60
    """
    from dpaudit.cli import frontiers

    frontiers.show(
        dim=dim,
        samples=samples,
        seconds=seconds,
        table=table,
        write=write,
        out=out,
        output=output,
        calibrate=calibrate,
        eta=eta,
    )


@app.command(name="list")
def list_(
    kind: Annotated[
        Literal[
            "sources",
            "samplers",
            "hosts",
            "local",
            "attacks",
            "mitigations",
            "submissions",
            "tests",
            "services",
            "transcripts",
            "loggers",
            "measures",
            "experiments",
        ],
        typer.Argument(show_default=False),
    ],
    output: FormatOption = "text",
) -> None:
    """What there is of a kind, with the distribution it comes from. Imports none of it."""
    from dpaudit.cli import listing

    listing.show(kind, output)


@app.command()
def report(
    folder: Annotated[
        Path | None,
        typer.Argument(metavar="DIR", help="Where an audit, a run or the demo left its results.", show_default=False),
    ] = None,
    also: Annotated[
        str | None,
        typer.Option(help="Also write for other programs: junit, sarif, markdown, with commas.", show_default=False),
    ] = None,
    schema: Annotated[
        bool, typer.Option("--schema", help="Print the JSON Schema of all documents instead; needs no DIR.")
    ] = False,
) -> None:
    """Write DIR/report.html from the results in DIR: one self-contained page."""
    from dpaudit.cli import experiments

    experiments.report(folder, also=also, schema=schema)


@deployment_app.command("apple")
def deployment_apple(
    config: Annotated[
        Path,
        typer.Option(metavar="DIR", help="Folder with the four com.apple.dprivacyd.*.plist files.", show_default=False),
    ],
    database: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The budget database (SQLite); it is only read.", show_default=False),
    ] = None,
    reports: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder with .dpsub and .json.anon report files.", show_default=False),
    ] = None,
    against: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="An older configuration: what has changed since.", show_default=False),
    ] = None,
    days: Annotated[int, typer.Option(min=1, help="Over how many days to add up.")] = 30,
    out: OutOption = None,
    also: AlsoOption = None,
    output: FormatOption = "text",
) -> None:
    """Apple's differential privacy, from its own files: ε per datum, per day and over time.

    The last line is the privacy loss that the configuration permits in a day. With --reports it is set beside what was
    really submitted, and beside the ε that the reports' bits themselves show.

    Exit 1 means a finding against the people whose data it is, such as reports whose bits show more ε than is claimed.
    """
    from dpaudit.cli import deployments

    deployments.apple(
        config, database=database, reports=reports, against=against, days=days, out=out, also=also, output=output
    )


@deployment_app.command("apple-scenario")
def deployment_apple_scenario(
    config: Annotated[
        Path,
        typer.Option(metavar="DIR", help="Folder with the four com.apple.dprivacyd.*.plist files.", show_default=False),
    ],
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="A new folder: database.sqlite and Reports/.", show_default=False)
    ],
    days: Annotated[int, typer.Option(min=1, help="Simulated days.")] = 30,
    platform: Annotated[
        Literal["macos", "ios"], typer.Option(help="Which report files, and how long they are kept.")
    ] = "macos",
    seed: SeedOption = None,
) -> None:
    """A made-up device under such a configuration: its database and reports, in Apple's own formats, day by day."""
    from dpaudit.cli import deployments

    deployments.apple_scenario(config, out=out, days=days, platform=platform, seed=seed)


@verify_app.command("transcript")
def verify_transcript(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="A transcript's JSON file.", show_default=False)],
    opening: Annotated[
        Path | None,
        typer.Option(help="joint-seeds: the server's sealed opening, to check the used noise too.", show_default=False),
    ] = None,
    release: Annotated[
        Path | None,
        typer.Option(help="joint-seeds: the release (.npy), to check it against query and noise.", show_default=False),
    ] = None,
    server: Annotated[
        str | None, typer.Option(help="joint-seeds: the server's public key, in hexadecimal.", show_default=False)
    ] = None,
    verifier: Annotated[
        str | None, typer.Option(help="The verifier's public key, in hexadecimal.", show_default=False)
    ] = None,
    output: FormatOption = "text",
) -> None:
    """Did everyone follow the protocol? Needs the transcript alone: no party and no network.

    Exit 0: it holds. 1: somebody cheated, or it was changed. 2: not a transcript. Whose signatures count is yours to say:
    give the keys that you know the parties by, or compare those that the verdict names.

    Example: dpaudit verify transcript joint-seeds.json
    """
    from dpaudit.cli import verifying

    verifying.transcript(path, output, opening=opening, release=release, server=server, verifier=verifier)


@key_app.command("new")
def key_new(
    dim: Annotated[int, typer.Option(help="Dimension of the noise vectors it serves.", show_default=False)],
    beta: Annotated[float, typer.Option(help="Thinness of the pancakes; smaller leaks more.", show_default=False)],
    out: Annotated[Path, typer.Option(help="File to write, mode 0600; never overwritten.")] = Path("key.json"),
    gamma: Annotated[str, typer.Option(help="Their number: 2sqrtd, 20sqrtd, 2d, 20d or a number.")] = "2sqrtd",
    directions: Annotated[int, typer.Option(help="Secret directions, mutually orthogonal.")] = 1,
    allow_small_gamma: Annotated[
        bool, typer.Option("--allow-small-gamma", help="Allow γ < 2√d, which can be found without the key.")
    ] = False,
) -> None:
    """Make a pancake key: the secret of a backdoored lab specimen."""
    from dpaudit.cli import keys

    keys.new(dim=dim, beta=beta, gamma=gamma, out=out, directions=directions, allow_small_gamma=allow_small_gamma)


@key_app.command("show")
def key_show(
    path: Annotated[Path, typer.Argument(metavar="KEY", help="A key file.", show_default=False)],
    output: FormatOption = "text",
) -> None:
    """Show what a key is for, and its fingerprint; never its secret."""
    from dpaudit.cli import keys

    keys.show(path, output)
