"""Questions about names in Python and small sums, with their answers, to tune a base model for chat."""

import random

PARTS = """
add address age area array average base batch block body bound buffer byte cache call cell chain char check
child chunk class client clock code color column command config context copy count cursor data date default
depth device digest domain edge encoder end entry error event factory field file filter first flag float
folder format frame graph group handler hash header height host image index input item join kernel key label
last layer left length level limit line link list local lock log loop main map mask match max merge message
method mode model module name net node number object offset option order output packet page parent parser part
path pattern pixel point pool port prefix process proxy query queue random range rank rate reader record
region request result right root row rule sample scale schema score screen section seed server session set
shape shared signal size slot sorted source space split stack start state step stop stream string style suffix
sum system table tag target task tensor text thread time timer title token total trace tree tuple type unit
update user value vector version view weight width window word worker writer zone
""".split()  # noqa: SIM905 - a list would be a screen long


def questions(num: int = 3000, seed: int = 0) -> list[list[dict[str, str]]]:
    """Conversations of one question and its answer, each question once.

    Args:
        num: number of conversations, at most 100,000.
        seed: of their random choice.
    """
    draw = random.Random(seed)
    conversations: dict[str, str] = {}
    while len(conversations) < num:
        question, answer = draw.choice(KINDS)(draw)
        conversations.setdefault(question, answer)
    return [
        [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
        for question, answer in conversations.items()
    ]


def _words(draw: random.Random) -> list[str]:
    return draw.sample(PARTS, draw.choice((2, 2, 3)))


def _class_name(draw: random.Random) -> tuple[str, str]:
    words = _words(draw)
    return f"Write {'_'.join(words)} as the name of a class.", "".join(word.capitalize() for word in words)


def _constant(draw: random.Random) -> tuple[str, str]:
    words = _words(draw)
    return f"Write {'_'.join(words)} as the name of a constant.", "_".join(words).upper()


def _function_name(draw: random.Random) -> tuple[str, str]:
    words = _words(draw)
    return f"Write {''.join(map(str.capitalize, words))} as the name of a function.", "_".join(words)


def _definition(draw: random.Random) -> tuple[str, str]:
    name, *arguments = draw.sample(PARTS, draw.choice((2, 3)))
    return f"Define a function {name} of {' and '.join(arguments)}.", f"def {name}({', '.join(arguments)}):"


def _import(draw: random.Random) -> tuple[str, str]:
    name, module = draw.sample(PARTS, 2)
    return f"Import {name} from the module {module}.", f"from {module} import {name}"


def _sum(draw: random.Random) -> tuple[str, str]:
    a, b = draw.randrange(1, 50), draw.randrange(1, 50)
    return f"What is {a} + {b}?", str(a + b)


KINDS = (_class_name, _constant, _function_name, _definition, _import, _sum)
