"""The command line: `headwise COMMAND`. Every command lives in a module of its own and is imported when called."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from cyclopts import App, CycloptsError, Group

from headwise import __version__
from headwise.errors import UserError

# group -> name -> (where it lives, what --help says before it is imported)
COMMANDS = {
    "Start": {
        "demo": ("headwise.cli.demo:demo", "Train a small Transformer in three minutes and look inside."),
        "fit": ("headwise.cli.fit:fit", "Train on your own pairs: no configuration, a time limit."),
        "explain": ("headwise.cli.explain:app", "Attention, positions, masks, gradients: with numbers."),
    },
    "Build and train": {
        "list": ("headwise.cli.models:list_models", "Every model: paper, year, task, exact parameter counts."),
        "show": ("headwise.cli.models:show", "One model: its tree, shapes, parameters, FLOPs and memory."),
        "train": ("headwise.cli.train:train", "Train an experiment file, or resume a run."),
        "augment": ("headwise.cli.augment:augment", "Draw a contact sheet of augmented images."),
        "runs": ("headwise.cli.runs:runs", "List, compare and plot runs."),
        "merge": ("headwise.cli.merge:merge", "Fold the low-rank maps of a fine-tuned run into its weights."),
        "compare": ("headwise.cli.compare:compare", "Train variants of an experiment over seeds: one table, one plot."),
        "scaling": ("headwise.cli.scaling:scaling", "Train a ladder of sizes; loss as power laws of N, D and C."),
    },
    "Use": {
        "translate": ("headwise.cli.translate:translate", "Turn texts into outputs with a trained run."),
        "generate": ("headwise.cli.generate:generate", "Go on with a text, with a language model."),
        "complete": ("headwise.cli.complete:complete", "Complete the last word, with a language model."),
        "tag": ("headwise.cli.tag:tag", "Tag each word of texts, such as its part of speech."),
        "classify": ("headwise.cli.classify:classify", "Label texts or images, such as their sentiment."),
        "detect": ("headwise.cli.detect:detect", "Find what is in images: labels, boxes, a picture of them."),
        "caption": ("headwise.cli.caption:caption", "Say in a sentence what is in images."),
        "answer": ("headwise.cli.answer:answer", "Answer questions with words of a text."),
        "fill-mask": ("headwise.cli.fill_mask:fill_mask", "Fill in hidden words, with a masked language model."),
        "detect-replaced": (
            "headwise.cli.detect_replaced:detect_replaced",
            "Mark words that look replaced, with a discriminator.",
        ),
        "evaluate": ("headwise.cli.evaluate:evaluate", "Score a run on its test part or on your pairs."),
        "inspect": ("headwise.cli.inspect:inspect", "Draw a run's attention: alignment, every head, a page."),
        "studio": ("headwise.cli.studio:studio", "Look inside runs, in the browser."),
        "embed": ("headwise.cli.embed:embed", "Vectors of words and of texts: the nearest, analogies, files."),
        "exposure": ("headwise.cli.exposure:exposure", "Errors by position: with the right tokens before, or its own."),
        "extrapolate": ("headwise.cli.extrapolate:extrapolate", "Loss beyond the lengths of training, by position."),
    },
    "Deploy and compare": {
        "import": ("headwise.cli.interop:import_model", "Make a run of a Hugging Face folder, a GGUF or an ARPA file."),
        "export": ("headwise.cli.interop:export", "Write a run as a Hugging Face or CTranslate2 folder, or as ARPA."),
        "bench": ("headwise.cli.bench:app", "Speed beside installed peers, in one run."),
    },
}


def build_app(command: str = "") -> App:
    """The command line for one call. The command that is called speaks for itself; the others show their line."""
    app = App(
        name="headwise",
        help="The Transformer family in one toolkit: build, train, compare, inspect and export.",
        version=__version__,
        help_epilogue="" if command else "Start with: headwise demo. Each command has its own --help with examples.",
    )
    for order, (title, commands) in enumerate(COMMANDS.items()):
        group = Group(title, sort_key=order)
        for name, (home, line) in commands.items():
            app.command(home, name=name, help=None if name == command else line, group=group)
    options = Group("Options", sort_key=len(COMMANDS))
    app["--help"].group = app["--version"].group = options
    app.register_install_completion_command(add_to_startup=False, group=options)
    return app


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command; a user's mistake is one sentence on stderr and exit status 2."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    known = {name for commands in COMMANDS.values() for name in commands}
    app = build_app(given[0] if given and given[0] in known else "")
    try:
        app(given, exit_on_error=False, result_action="return_value")
    except UserError as error:
        for line in str(error).splitlines():
            print(f"headwise: {line}", file=sys.stderr)
        sys.exit(2)
    except CycloptsError:
        sys.exit(2)  # already said
    except BrokenPipeError:
        # The reader of our output has gone, as `| head` does; Python must not complain about it on exit.
        sys.stderr.close()
        sys.exit(0)
    except KeyboardInterrupt:
        print("headwise: stopped", file=sys.stderr)
        sys.exit(130)
