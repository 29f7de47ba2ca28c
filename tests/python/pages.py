"""What the tests of documentation pages share: a page's commands and its code."""
import re

from conftest import ROOT


def page(name):
    return (ROOT / name).read_text(encoding="utf-8")


def commands(text, programs=r"build/|\./run|pip "):
    """Lines of code that call a program of ours, without their comments."""
    lines = re.findall(rf"^(?:    |\$ )((?:{programs}).*)$", text, re.MULTILINE)
    return [re.sub(r" +", " ", re.sub(r" +#.*", "", line)) for line in lines]


def python_blocks(text):
    return re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
