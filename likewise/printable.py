"""Names of files are bytes, and need not be text: what cannot be printed or stored as UTF-8 becomes `\\udcff`, say."""


def printable(text: str) -> str:
    return text.encode(errors="backslashreplace").decode()
