-- What every run of wrk prints at its end; with KEYS_FROM set, a key that counts up; with PORTS set,
-- a server for each thread.
-- luacheck: globals setup init request done, read globals wrk offset
local KEYS = 100000
local from = tonumber(os.getenv("KEYS_FROM"))

if from then
  local threads = 0

  -- Each thread begins at an offset of its own.
  function setup(thread)
    thread:set("offset", from + threads * tonumber(os.getenv("KEYS_APART")))
    threads = threads + 1
  end

  local head, number

  function init()
    local target = "GET " .. wrk.path .. " HTTP/1.1\r\nHost: " .. wrk.host .. "\r\n"
    head = target .. "x-key: k"
    number = offset % KEYS
  end

  function request()
    number = (number + 1) % KEYS
    return head .. number .. "\r\n\r\n"
  end
end

local ports = os.getenv("PORTS")

if ports then
  local next_port = string.gmatch(ports, "%d+")

  function setup(thread)
    thread.addr = wrk.lookup("127.0.0.1", next_port())[1]
  end
end

function done(summary, latency)
  local errors = summary.errors
  print(string.format(
    "outcome %d %d %d %d %d",
    summary.requests,
    summary.duration,
    latency:percentile(50),
    latency:percentile(99),
    errors.connect + errors.read + errors.write + errors.timeout
  ))
end
