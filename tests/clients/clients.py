"""The clients of PyPI, curl and Prometheus: a row for each of their cases. See tests/clients.sh."""

import asyncio
import importlib.metadata
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.request

import anthropic
import boto3
import grpc
import openai
from authlib.integrations.requests_client import OAuth2Session as AuthlibSession
from botocore.config import Config
from huggingface_hub import HfApi
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client
from msal.oauth2cli import Client as MsalClient
from oauthlib.oauth2 import BackendApplicationClient
from requests_oauthlib import OAuth2Session

address = sys.argv[1]
wrong = 0


def row(protocol, client, asked, expected, got):
    global wrong
    print(f"| {protocol} | {client} | {asked} | {got} |", flush=True)
    if got != expected:
        wrong = 1
        print(f"tests/clients.sh: {client}, {asked}: {got}; expected {expected}", file=sys.stderr)


def version(name):
    return f"{name} {importlib.metadata.version(name)}"


def get(url):
    return urllib.request.urlopen(url, timeout=5).read().decode()


def again(case, expected, admitted=True):
    """When it was called again: first since the admitted request, then since the call before, in
    the seconds that are expected, unless a call is earlier, or later by 2 s: of a busy machine."""
    at = json.loads(get(f"http://{address}/seen/{case}"))
    if admitted:
        del at[1]
    wanted = [int(it) for it in re.findall(r"\d+", expected.split(":")[0])]
    waits = [there - here for here, there in zip(at, at[1:])]
    shown = [n if n - 0.1 <= it < n + 2 else int(it) for it, n in zip(waits, wanted + [0] * 9)]
    return f"again after {', '.join(map(str, shown))} s" if shown else "not again"


def grpcio():
    retries = {
        "maxAttempts": 4, "initialBackoff": "0.1s", "maxBackoff": "1s", "backoffMultiplier": 2,
        "retryableStatusCodes": ["RESOURCE_EXHAUSTED", "UNAVAILABLE"],
    }
    config = json.dumps({"methodConfig": [{"name": [{}], "retryPolicy": retries}]})
    channel = grpc.insecure_channel(address, options=[("grpc.service_config", config)])

    def said(route, case, deadline):
        method = channel.unary_unary(f"/{route}/{case}", lambda it: b"", lambda it: it)
        try:
            method(None, timeout=deadline)
            return "OK"
        except grpc.RpcError as error:
            seconds = dict(error.trailing_metadata()).get("retry-after", "none")
            return f"status {error.code().value[0]}, `retry-after` {seconds}"

    for asked, route, deadline, expected in [
        ("2 s, deadline 5 s", "grpc-2s", 5, "again after 2 s: OK"),
        ("2 s, no deadline", "grpc-2s", None, "again after 2 s: OK"),
        ("2 s, deadline 1 s", "grpc-2s", 1, "not again: status 8, `retry-after` 2"),
        ("1 h, no deadline", "grpc-1h", None, "not again: status 8, `retry-after` 3600"),
        ("no decision", "grpc-down", 9, "again after 1, 1, 1 s: status 14, `retry-after` none"),
    ]:
        case = "grpcio-" + asked.translate(str.maketrans(" ", "-", ","))
        if route != "grpc-down":
            said(route, case, 5)
        last = said(route, case, deadline)
        got = f"{again(case, expected, route != 'grpc-down')}: {last}"
        row("gRPC", version("grpcio"), asked, expected, got)


async def mcp():
    url = f"http://{address}/mcp/mcp"
    async with streamable_http_client(url) as streams:
        async with ClientSession(streams[0], streams[1]) as session:
            await session.initialize()
            try:
                got = str(await session.call_tool("tool", {}))
            except Exception as error:
                told = getattr(error, "error", error)
                got = f"{told.code}, {told.message}, {json.dumps(told.data)}"
    expected = '-32000, quota exceeded: calls, {"quotas": ["calls"], "retry_after_s": 3600}'
    row("`Form::JsonRpc`", version("mcp"), "tools/call, 1 h", expected, got)


def calls(protocol, client, asked, case, call, expected):
    """An admitted call and a denied one."""
    call()
    try:
        call()
        last = "OK"
    except Exception as error:
        code = getattr(error, "returncode", None)
        last = type(error).__name__ if code is None else f"exit status {code}"
    row(protocol, client, asked, expected, f"{again(case, expected)}: {last}")


def models():
    for name, api in [("openai", openai.OpenAI), ("anthropic", anthropic.Anthropic)]:
        for asked, route, expected in [
            ("2 s", "models-2s", "again after 2 s: OK"),
            ("1 h", "models", "not again: RateLimitError"),
        ]:
            case = f"{name}-{route}"
            client = api(api_key="key", base_url=f"http://{address}/{route}/{case}")
            calls("`x-should-retry`", f"{version(name)} (Python)", asked, case,
                  client.models.list, expected)


def oauth():
    os.environ["OAUTHLIB_INSECURE_TRANSPORT"] = "1"
    oauthlib = BackendApplicationClient("id")
    tokens = {
        "Authlib": lambda url: AuthlibSession("id", "secret").fetch_token(
            url, grant_type="client_credentials"),
        "msal": lambda url: MsalClient(
            {"token_endpoint": url}, "id", client_secret="secret").obtain_token_for_client(),
        "requests-oauthlib": lambda url: OAuth2Session(client=oauthlib).fetch_token(
            url, client_id="id", client_secret="secret"),
    }
    for asked, route, expected in [
        ("1 h, a problem document", "token-plain", ["a token", "a token", "MissingTokenError"]),
        ("1 h, `slow_down`", "token", ["the error with its text"] * 3),
    ]:
        for (name, fetch), wanted in zip(tokens.items(), expected):
            case = f"{name}-{route}"
            url = f"http://{address}/{route}/{case}"
            fetch(url)
            try:
                last = told = fetch(url)
                if "error" not in told:
                    last = "a token"
            except Exception as error:
                last, told = type(error).__name__, error
            if all(word in str(told) for word in ["slow_down", "too many requests"]):
                last = "the error with its text"
            row("OAuth", version(name), asked, f"not again: {wanted}", f"{again(case, '')}: {last}")


def s3():
    client = boto3.client(
        "s3", endpoint_url=f"http://{address}/buckets", region_name="eu-central-1",
        aws_access_key_id="id", aws_secret_access_key="key",
        config=Config(s3={"addressing_style": "path"}),
    )
    calls("`x-amz-retry-after`", version("boto3"), "2 s", "boto3",
          lambda: client.get_object(Bucket="boto3", Key="key"), "again after 2 s: OK")


def hub():
    for asked, route, expected in [
        ("5 s; `calls-2s`, `calls-5s`", "list", "again after 6 s: OK"),
        ("5 s; `short` of 2 s, `long` of 5 s", "words", "again after 3, 3 s: OK"),
    ]:
        case = f"huggingface-{route}"
        api = HfApi(endpoint=f"http://{address}/{route}/{case}")
        calls("`RateLimit`", version("huggingface_hub"), asked, case,
              lambda: list(api.list_models()), expected)


def curl():
    name = " ".join(subprocess.check_output(["curl", "--version"], text=True).split(" ")[:2])
    for asked, route, options, expected in [
        ("2 s", "plain-2s", [], "again after 2 s: OK"),
        ("1 h, `--retry-max-time 10`", "plain", ["--retry-max-time", "10"],
         "not again: exit status 22"),
    ]:
        command = ["curl", "--silent", "--fail", "--retry", "3", *options]
        url = f"http://{address}/{route}/curl-{route}"
        calls("`retry-after`", f"{name}, `--retry`", asked, f"curl-{route}",
              lambda: subprocess.check_output([*command, url], timeout=60), expected)


def prometheus():
    told = subprocess.run(["prometheus", "--version"], capture_output=True, text=True, check=True)
    name = "prometheus " + (told.stdout + told.stderr).split("version ")[1].split("+")[0].split(" ")[0]
    with tempfile.TemporaryDirectory() as folder:
        port = 9000 + time.time_ns() % 900
        writes = "".join(
            f"\n- {{name: {route}, url: 'http://{address}/{route}/prometheus-{route}/write',"
            " queue_config: {batch_send_deadline: 1s}}" for route in ["samples", "plain"])
        with open(f"{folder}/prometheus.yml", "w") as file:
            file.write("global: {scrape_interval: 1s}\nscrape_configs:\n- job_name: own\n"
                       f"  static_configs: [{{targets: ['127.0.0.1:{port}']}}]\nremote_write:{writes}\n")
        server = subprocess.Popen(
            ["prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}",
             f"--web.listen-address=127.0.0.1:{port}"], stderr=subprocess.DEVNULL)
        try:
            time.sleep(12)
            metrics = get(f"http://127.0.0.1:{port}/metrics")
        finally:
            server.terminate()
            server.wait()
    for asked, route, expected in [
        ("2 s, a 503", "samples", "no sample is lost, some sent again"),
        ("1 h, a 429", "plain", "samples are lost, none sent again"),
    ]:
        def total(what):
            return sum(float(line.split(" ")[-1]) for line in metrics.splitlines() if line.startswith(
                f"prometheus_remote_storage_samples_{what}_total{{") and f'"{route}"' in line)
        lost = "samples are lost" if total("failed") else "no sample is lost"
        got = f"{lost}, {'some' if total('retried') else 'none'} sent again"
        row("remote write", name, asked, expected, got)


grpcio()
asyncio.run(mcp())
models()
oauth()
s3()
hub()
curl()
prometheus()
sys.exit(wrong)
