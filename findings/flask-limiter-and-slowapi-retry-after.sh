#!/usr/bin/env bash
# flask-limiter and slowapi count by one library, and their fields of a denial differ.
#
# Expected: Retry-After is the time that is left, rounded up, X-RateLimit-Reset a whole number of
#   seconds since 1970, in both.
# Seen: slowapi's X-RateLimit-Reset has a fraction, and both add a second to the end of the window.
#   flask-limiter then cuts the instant and the wait to whole seconds, so that a client that obeys
#   Retry-After may come up to a second early, and is denied again.
# With: flask-limiter 4.1.1, slowapi 0.1.10, limits 5.8.0; 27 November 2026
# Matters: clients that read the reset as a whole number, and those that try once after Retry-After.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

python3 -m venv env
env/bin/pip install -q flask==3.1.2 flask-limiter==4.1.1 starlette==0.50.0 httpx==0.28.1 \
  slowapi==0.1.10 limits==5.8.0
cat >ask.py <<'END'
import time
import flask, flask_limiter, slowapi, slowapi.middleware, starlette.applications
import starlette.responses, starlette.routing, starlette.testclient

options = {"default_limits": ["1/3 seconds"], "headers_enabled": True, "strategy": "moving-window"}

app = flask.Flask("app")
app.add_url_rule("/", view_func=lambda: "", endpoint="root")
flask_limiter.Limiter(lambda: "one", app=app, storage_uri="memory://", **options)

async def root(request):
    return starlette.responses.Response()

other = starlette.applications.Starlette(routes=[starlette.routing.Route("/", root)])
other.state.limiter = slowapi.Limiter(key_func=lambda: "one", **options)
other.add_exception_handler(slowapi.errors.RateLimitExceeded,
                            slowapi._rate_limit_exceeded_handler)
other.add_middleware(slowapi.middleware.SlowAPIMiddleware)

for name, client in (("flask-limiter", app.test_client()),
                     ("slowapi", starlette.testclient.TestClient(other))):
    # The first request comes late in a second of the wall clock, the second early in the next.
    time.sleep(1.75 - time.time() % 1)
    client.get("/")
    time.sleep(0.35)
    denied = client.get("/")
    wait, reset = denied.headers["Retry-After"], denied.headers["X-RateLimit-Reset"]
    time.sleep(int(wait))
    print(f"{name}: {denied.status_code}, 2.6 s left, Retry-After: {wait},"
          f" X-RateLimit-Reset is whole: {reset.isdigit()}, then {client.get('/').status_code}")
END
env/bin/python -W ignore ask.py | tee saw
diff - saw <<'END' || { echo "changed: see above" >&2; exit 1; }
flask-limiter: 429, 2.6 s left, Retry-After: 2, X-RateLimit-Reset is whole: True, then 429
slowapi: 429, 2.6 s left, Retry-After: 3, X-RateLimit-Reset is whole: False, then 200
END
