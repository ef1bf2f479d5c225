# Varnish. `client-ip = { trusted = ["10.0.0.0/8"] }`, the networks of its machines: it appends to
# X-Forwarded-For. A GET that it answers from its cache is not counted, and a 200 without
# Cache-Control is kept for two minutes, with the RateLimit of the first client.
vcl 4.1;

backend app {
    .host = "127.0.0.1";
    .port = "3000";
}
