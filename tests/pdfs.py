"""Small PDF files."""


def pdf(*pages: str) -> bytes:
    """A minimal file of one line of text a page."""
    numbers = [f"{4 + 2 * index} 0 R" for index in range(len(pages))]
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{' '.join(numbers)}] /Count {len(pages)} >>",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for index, words in enumerate(pages):
        fonts = "/Resources << /Font << /F1 3 0 R >> >>"
        objects.append(f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 200 100] {fonts} /Contents {5 + 2 * index} 0 R >>")
        drawn = f"BT /F1 18 Tf 10 40 Td ({words}) Tj ET"
        objects.append(f"<< /Length {len(drawn)} >>\nstream\n{drawn}\nendstream")
    return _file(objects)


def endless_pdf() -> bytes:
    """Its page draws a form that draws itself twice, and so on."""
    form = "/Resources << /XObject << /X 5 0 R >> >>"
    twice = "/Length 11 >>\nstream\n/X Do /X Do\nendstream"
    return _file(
        [
            "<< /Type /Catalog /Pages 2 0 R >>",
            "<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 200 100] {form} /Contents 4 0 R >>",
            f"<< {twice}",
            f"<< /Type /XObject /Subtype /Form /BBox [0 0 9 9] {form} {twice}",
        ]
    )


def _file(objects: list[str]) -> bytes:
    body = "%PDF-1.4\n"
    offsets = []
    for number, one in enumerate(objects, 1):
        offsets.append(len(body))
        body += f"{number} 0 obj\n{one}\nendobj\n"
    table = "".join(f"{offset:010} 00000 n \n" for offset in offsets)
    size = len(objects) + 1
    end = f"xref\n0 {size}\n0000000000 65535 f \n{table}trailer\n<< /Size {size} /Root 1 0 R >>\nstartxref\n{len(body)}"
    return f"{body}{end}\n%%EOF\n".encode()
