"""What a page of the report has in it."""

from html.parser import HTMLParser


class Page(HTMLParser):
    """Elements with their attributes, and the texts outside of style and script."""

    def __init__(self, page):
        super().__init__()
        self.elements, self.texts, self._open = [], [], []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        self._open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        while self._open and self._open.pop() != tag:
            pass

    def handle_data(self, data):
        if self._open and self._open[-1] not in ("style", "script") and data.strip():
            self.texts.append(data.strip())

    @property
    def shape(self):
        return [(tag, tuple(attributes)) for tag, attributes in self.elements]
