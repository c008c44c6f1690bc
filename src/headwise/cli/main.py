"""The command line: `headwise COMMAND`. Every command lives in a module of its own and is imported when called."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Sequence

from cyclopts import App, CycloptsError, Group, MissingArgumentError, UnusedCliTokensError

from headwise import __version__
from headwise.config.plugins import take_options
from headwise.errors import UserError
from headwise.utils.console import make_console
from headwise.utils.memory import describe_shortage, is_out_of_memory

# group -> name -> (module and function, line of `headwise --help`, shown without importing the module)
COMMANDS = {
    "Start": {
        "demo": ("headwise.cli.demo:demo", "Train a small Transformer in three minutes and plot its attention."),
        "fit": ("headwise.cli.fit:fit", "Train on your own data within a time limit, without a config file."),
        "explain": ("headwise.cli.explain:app", "Attention, positions, masks, gradients: worked examples."),
    },
    "Build and train": {
        "list": ("headwise.cli.models:list_models", "List all models: paper, year, tasks, exact parameter counts."),
        "show": ("headwise.cli.models:show", "Show a model: modules, shapes, parameters, FLOPs and memory."),
        "new": ("headwise.cli.new:new", "Write a file with a part of your own: a mixer, a norm, a task, a model, ..."),
        "check": ("headwise.cli.check:check", "Check your own parts: shapes, causality, padding, KV cache, gradients."),
        "train": ("headwise.cli.train:train", "Train an experiment, or resume a run."),
        "plan": ("headwise.cli.plan:plan", "Plan a training on many devices: memory, communication, time; job files."),
        "augment": ("headwise.cli.augment:augment", "Draw examples of augmented images."),
        "runs": ("headwise.cli.runs:app", "List, compare and plot runs; copy, archive, unpack and remove them."),
        "merge": ("headwise.cli.merge:merge", "Merge the LoRA matrices of a run into its weights."),
        "compare": ("headwise.cli.compare:compare", "Train variants of an experiment over seeds; a table and a plot."),
        "search": (
            "headwise.cli.search:search",
            "Search for hyperparameters; a table, a plot and the best experiment.",
        ),
        "scaling": ("headwise.cli.scaling:scaling", "Train several sizes and fit scaling laws."),
    },
    "Use": {
        "translate": ("headwise.cli.translate:translate", "Translate or transduce texts with an encoder-decoder."),
        "generate": ("headwise.cli.generate:generate", "Generate text with a language model."),
        "complete": ("headwise.cli.complete:complete", "Complete the last word of a text with a language model."),
        "tag": ("headwise.cli.tag:tag", "Tag the words of texts, such as with parts of speech."),
        "classify": ("headwise.cli.classify:classify", "Classify texts or images."),
        "detect": ("headwise.cli.detect:detect", "Detect objects in images: labels, scores and boxes."),
        "caption": ("headwise.cli.caption:caption", "Caption images."),
        "fold": ("headwise.cli.fold:fold", "Predict the structure of a protein from an alignment."),
        "compare-structures": (
            "headwise.cli.compare_structures:compare_structures",
            "Compare a predicted protein structure with the true one: lDDT, TM-score, GDT-TS.",
        ),
        "act": ("headwise.cli.act:app", "Collect and watch episodes of agents in environments."),
        "place": ("headwise.cli.place:place", "Place the operators of a model on devices; a timeline of a step."),
        "answer": ("headwise.cli.answer:answer", "Answer questions with a span of a text."),
        "fill-mask": ("headwise.cli.fill_mask:fill_mask", "Fill in masked words with a masked language model."),
        "detect-replaced": (
            "headwise.cli.detect_replaced:detect_replaced",
            "Mark replaced words with an ELECTRA discriminator.",
        ),
        "evaluate": ("headwise.cli.evaluate:evaluate", "Evaluate a run on its test split or on your own data."),
        "inspect": ("headwise.cli.inspect:inspect", "Draw attention maps of a run: one map, all heads, an HTML page."),
        "studio": ("headwise.cli.studio:studio", "Explore runs in the browser."),
        "embed": ("headwise.cli.embed:embed", "Word and text embeddings: nearest neighbours, analogies, files."),
        "exposure": ("headwise.cli.exposure:exposure", "Measure exposure bias: errors by position."),
        "extrapolate": ("headwise.cli.extrapolate:extrapolate", "Measure length extrapolation: loss by position."),
    },
    "Deploy and compare": {
        "import": (
            "headwise.cli.interop:import_model",
            "Import a Hugging Face folder, a GGUF or an ARPA file as a run.",
        ),
        "export": ("headwise.cli.interop:export", "Export a run to Hugging Face, CTranslate2 or ARPA."),
        "serve": (
            "headwise.cli.serve:serve",
            "Serve models over HTTP: OpenAI's and LibreTranslate's APIs, and our own.",
        ),
        "bench": ("headwise.cli.bench:app", "Compare the speed with other installed libraries."),
    },
}


START = "Start with: headwise demo. Each command has its own --help with examples."
EVERYWHERE = (
    "Every command takes --with FILE, a Python file with your own parts (headwise new writes one), and --trust, which "
    "executes the parts that a run keeps."
)


def build_app(command: str = "") -> App:
    """The command line; the module of `command` gives its own help, the others keep their line of the table."""
    app = App(
        name="headwise",
        help="The Transformer family in one toolkit: build, train, compare, inspect and export.",
        version=__version__,
        console=make_console() if os.environ.get("NO_COLOR") else None,
        help_epilogue=EVERYWHERE if command else f"{START}\n\n{EVERYWHERE}",
    )
    for order, (title, commands) in enumerate(COMMANDS.items()):
        group = Group(title, sort_key=order)
        for name, (home, line) in commands.items():
            app.command(home, name=name, help=None if name == command else line, group=group)
    options = Group("Options", sort_key=len(COMMANDS))
    app["--help"].group = app["--version"].group = options
    app.register_install_completion_command(add_to_startup=False, group=options)
    return app


def describe_usage_error(error: CycloptsError) -> str:
    """A wrong command line in one sentence: what is wrong, and where the usage is described."""
    words = list(error.command_chain or ())
    argument, unused = error.argument, error.unused_tokens
    if isinstance(error, MissingArgumentError) and argument is not None:
        name = argument.name if argument.index is None else argument.name.lstrip("-").upper()
        problem = f"{name} needs a value"
    elif isinstance(error, UnusedCliTokensError) and unused:
        problem = f"does not take {shlex.join(unused)}"
    else:
        sentences = re.split(r"(?<=[.?]) ", " ".join(str(error).split()))
        clauses = [sentence.rstrip(".") for sentence in sentences if not sentence.startswith("Available commands")]
        problem = "; ".join(clause[:1].lower() + clause[1:] for clause in clauses if clause)
    place = " ".join(words)
    return f"{f'{place}: ' if place else ''}{problem}; see `{' '.join(('headwise', *words))} --help`"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command; a UserError is printed on stderr as one sentence, with exit status 2. Options of all commands
    (`--with`, `--trust`) are applied before the command is looked up."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    known = {name for commands in COMMANDS.values() for name in commands}
    try:
        words = take_options(words)
        app = build_app(words[0] if words and words[0] in known else "")
        app(words, exit_on_error=False, print_error=False, result_action="return_value")
    except UserError as error:
        for line in str(error).splitlines():
            print(f"headwise: {line}", file=sys.stderr)
        sys.exit(2)
    except CycloptsError as error:
        print(f"headwise: {describe_usage_error(error)}", file=sys.stderr)
        sys.exit(2)
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        what = describe_shortage(error, "this", "choose smaller sizes, shorter inputs or fewer at once")
        print(f"headwise: {what}", file=sys.stderr)
        sys.exit(2)
    except BrokenPipeError:
        # The reader of stdout has closed it, as `| head` does; without this Python reports an error on exit.
        sys.stderr.close()
        sys.exit(0)
    except KeyboardInterrupt:
        print("headwise: stopped", file=sys.stderr)
        sys.exit(130)
