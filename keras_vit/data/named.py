"""Objects of the user's own, named by text such as "my_module:MyLayer"."""

import ast
import difflib
import importlib


def parse(text: str) -> tuple[str, list, dict]:
    """Return name, positional and keyword arguments of a call.

    `text` is a name, such as "MixUp" or "my_module:MyLayer", perhaps with
    literal arguments, as in "MixUp(alpha=0.2)".

    Raises:
        ValueError: If it is anything else.
    """
    module, colon, call_text = text.rpartition(":")
    if "(" in module:  # a colon within the arguments
        module, colon, call_text = "", "", text
    try:
        call = ast.parse(call_text, mode="eval").body
        if not isinstance(call, ast.Call):
            call = ast.Call(call, [], [])
        name = ast.unparse(call.func)
        positional = [ast.literal_eval(value) for value in call.args]
        keywords = {
            str(k.arg): ast.literal_eval(k.value) for k in call.keywords
        }
    except (AttributeError, SyntaxError, TypeError, ValueError) as error:
        raise ValueError(
            f"{text!r} must be a name with literal arguments"
        ) from error
    names = [*name.split("."), *keywords, *module.split(".") * bool(colon)]
    if not all(map(str.isidentifier, names)):
        raise ValueError(f"{text!r} must be a name with literal arguments")
    return module + colon + name, positional, keywords


def imported(name: str, argument: str):
    """Return what "module:Name" names, for the argument of that name.

    The module is imported from `sys.path`, which begins with the current
    directory for `python -m`.

    Raises:
        ValueError: If there is no such module, or it has no such name.
    """
    module_name, _, attribute = name.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if not f"{module_name}.".startswith(f"{error.name}."):
            raise  # of something that the module imports
        raise ValueError(
            f"`{argument}` must name a module that can be imported, such as "
            f"a file {module_name}.py in the current directory. "
            f"Received: {argument}={name!r}"
        ) from error
    if not hasattr(module, attribute):
        near = difflib.get_close_matches(attribute, vars(module), n=3)
        raise ValueError(
            f"`{argument}` must name something in {module_name}. "
            f"Received: {argument}={name!r}. "
            f"Nearest names: {near or 'none'}"
        )
    return getattr(module, attribute)
