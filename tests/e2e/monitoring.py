"""What test_monitoring.sh asks of alert rules, a dashboard and Prometheus.

    monitoring.py expressions FILE          each expression of a file of rules or a dashboard, on a line
    monitoring.py check FILE SCRAPE...      is every metric and label that it asks for in one of the scrapes
    monitoring.py panels FILE               is each panel of a dashboard whole
    monitoring.py serve FILE                serves a file over HTTP; a partner that knows `port` (lib.sh)
    monitoring.py ask URL                   what is there
    monitoring.py query URL EXPRESSION      does Prometheus take it
"""
import http.server
import json
import re
import sys
import threading
import urllib.parse
import urllib.request

METRIC = re.compile(r"\b(leasefs_[a-z_]+)(?:\{([^}]*)\})?")
MATCHER = re.compile(r'(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"')
OF_PROMETHEUS = {"instance", "job"}


def dashboard(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def expressions_of(path):
    if path.endswith(".json"):
        for panel in dashboard(path)["panels"]:
            for target in panel["targets"]:
                yield target["expr"]
        return
    with open(path, encoding="utf-8") as file:
        for line in file:
            if match := re.match(r"\s+expr: (.*)", line):
                yield match[1]


def expressions(path):
    for expression in expressions_of(path):
        print(expression.replace("$__rate_interval", "5m").replace("$instance", ".*"))


def samples(paths):
    from prometheus_client.parser import text_string_to_metric_families

    found = {}
    for path in paths:
        with open(path, encoding="utf-8") as file:
            for family in text_string_to_metric_families(file.read()):
                for sample in family.samples:
                    labels = found.setdefault(sample.name, {})
                    for label, value in sample.labels.items():
                        labels.setdefault(label, set()).add(value)
    return found


def check(path, *scrapes):
    known = samples(scrapes)
    wrong = []
    for expression in expressions_of(path):
        for metric, matchers in METRIC.findall(expression):
            if metric not in known:
                wrong.append(f"{metric}: no mount tells it: {expression}")
                continue
            for label, operator, value in MATCHER.findall(matchers):
                if label in OF_PROMETHEUS:
                    continue
                if label not in known[metric]:
                    wrong.append(f"{metric}: no label {label}: {expression}")
                elif operator == "=" and value not in known[metric][label]:
                    wrong.append(f"{metric}: {label} is never {value}: {expression}")
    print("\n".join(wrong))
    sys.exit(bool(wrong))


def panels(path):
    places = set()
    ids = set()
    for panel in dashboard(path)["panels"]:
        assert panel["title"] and panel["targets"], panel
        assert all(target["expr"] for target in panel["targets"]), panel["title"]
        assert panel["id"] not in ids, panel["title"]
        ids.add(panel["id"])
        at = panel["gridPos"]
        covered = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not covered & places and at["x"] + at["w"] <= 24, panel["title"] + " lies over another"
        places |= covered
    print("ok")


def serve(path):
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            with open(path, "rb") as file:
                text = file.read()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    for line in sys.stdin:
        print(line.split()[0], server.server_address[1], flush=True)


def ask(url):
    with urllib.request.urlopen(url, timeout=10) as answer:
        print(answer.read().decode())


def query(url, expression):
    with urllib.request.urlopen(url + "?" + urllib.parse.urlencode({"query": expression}), timeout=10) as answer:
        sys.exit(json.load(answer)["status"] != "success")


if __name__ == "__main__":
    commands = {f.__name__: f for f in (expressions, check, panels, serve, ask, query)}
    commands[sys.argv[1]](*sys.argv[2:])
