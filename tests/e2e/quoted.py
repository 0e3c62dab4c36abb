#!/usr/bin/python3
"""quoted.py DOCUMENT DIRECTORY: each ```sh block of the document whose first comment begins with the name of a file of that
directory is that file, word for word.  Prints what differs; the status is 1 then."""

import os
import re
import sys

differ = 0
with open(sys.argv[1], encoding="utf-8") as document:
    blocks = re.findall(r"(?ms)^```sh\n(#!.*?\n# (\w+) .*?)^```", document.read())
for text, name in blocks:
    path = os.path.join(sys.argv[2], name)
    with open(path, encoding="utf-8") as recipe:
        if recipe.read() != text:
            print(f"the script {name} is not {path}")
            differ = 1
sys.exit(differ)
