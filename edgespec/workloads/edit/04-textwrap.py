"""Plain-text layout: wrapping, justification, columns and boxes."""

DEFAULT_WIDTH = 72


def split_words(text):
    """Split on white space and drop empty pieces."""
    return [word for word in text.split() if word]


def break_long_word(word, width):
    pieces = []
    while len(word) > width:
        pieces.append(word[: width - 1] + "-")
        word = word[width - 1 :]
    pieces.append(word)
    return pieces


def wrap(text, width=DEFAULT_WIDTH, indent=""):
    """Greedy wrapping: as many words on a line as fit."""
    room = width - len(indent)
    if room < 2:
        raise ValueError("the indent leaves no room for words")
    lines = []
    current = ""
    for word in split_words(text):
        for piece in break_long_word(word, room):
            if not current:
                current = piece
            elif len(current) + 1 + len(piece) <= room:
                current += " " + piece
            else:
                lines.append(indent + current)
                current = piece
    if current:
        lines.append(indent + current)
    return lines


def justify(line, width):
    words = split_words(line)
    if len(words) < 2:
        return line
    gaps = len(words) - 1
    spaces = width - sum(len(word) for word in words)
    if spaces < gaps:
        return line
    small, extra = divmod(spaces, gaps)
    out = []
    for i, word in enumerate(words[:-1]):
        out.append(word)
        out.append(" " * (small + (1 if i < extra else 0)))
    out.append(words[-1])
    return "".join(out)


def justify_paragraph(text, width=DEFAULT_WIDTH):
    lines = wrap(text, width)
    full = [justify(line, width) for line in lines[:-1]]
    return full + lines[-1:]


def columns(cells, count, width=DEFAULT_WIDTH, gap=2):
    """Lay the cells out row by row in equal columns."""
    if count < 1:
        raise ValueError("at least one column is needed")
    column_width = (width - gap * (count - 1)) // count
    rows = []
    for start in range(0, len(cells), count):
        row = cells[start : start + count]
        padded = [cell[:column_width].ljust(column_width) for cell in row]
        rows.append((" " * gap).join(padded).rstrip())
    return rows


def box(lines, title=""):
    inner = max([len(line) for line in lines] + [len(title) + 2])
    top = "+" + title.center(inner + 2, "-") + "+"
    bottom = "+" + "-" * (inner + 2) + "+"
    body = ["| " + line.ljust(inner) + " |" for line in lines]
    return [top, *body, bottom]


if __name__ == "__main__":
    sample = "The ferry leaves the northern pier at a quarter past six unless the fog is thicker than usual."
    for row in box(justify_paragraph(sample, 40), " notice "):
        print(row)
