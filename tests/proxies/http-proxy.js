// http-proxy. `client-ip = { trusted = ["10.0.0.0/8"] }`, the networks of its machines. Without
// `xfwd` it passes on what the client says.
const http = require("http");
const options = { target: "http://127.0.0.1:3000", xfwd: true };
const proxy = require("http-proxy").createProxyServer(options);
proxy.on("error", (_, request, response) => response.writeHead?.(502).end());
for (const host of ["127.0.0.1", "::1"])
  http.createServer((request, response) => proxy.web(request, response)).listen(8080, host);
