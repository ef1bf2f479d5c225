// The clients of npm, Chromium and Firefox: a row for each of their cases. See tests/clients.sh.
import { execFileSync, spawn } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import Anthropic from '@anthropic-ai/sdk';
import { create, createFileRegistry } from '@bufbuild/protobuf';
import { FileDescriptorProtoSchema, file_google_protobuf_empty } from '@bufbuild/protobuf/wkt';
import { Code, ConnectError, createClient } from '@connectrpc/connect';
import { createConnectTransport } from '@connectrpc/connect-node';
import grpc from '@grpc/grpc-js';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { EventSource } from 'eventsource';
import got from 'got';
import { Octokit } from 'octokit';
import OpenAI from 'openai';
import puppeteer from 'puppeteer-core';
import Stripe from 'stripe';

const address = process.argv[2];
const [host, port] = address.split(':');
let wrong = 0;

function row(protocol, client, asked, expected, got) {
  console.log(`| ${protocol} | ${client} | ${asked} | ${got} |`);
  if (got !== expected) {
    wrong = 1;
    console.error(`tests/clients.sh: ${client}, ${asked}: ${got}; expected ${expected}`);
  }
}

function version(name, shown = name) {
  return `${shown} ${JSON.parse(readFileSync(`node_modules/${name}/package.json`)).version}`;
}

function seen(path) {
  return fetch(`http://${address}/seen/${path}`).then((it) => it.json());
}

// When it was called again: first since the admitted request, then since the call before, in the
// seconds that are expected, unless a call is earlier, or later by 2 s: of a busy machine.
async function again(path, expected, admitted = true) {
  const at = await seen(path);
  if (admitted) at.splice(1, 1);
  const wanted = (expected.split(':')[0].match(/\d+/g) ?? []).map(Number);
  const waits = at.slice(1).map((it, i) => it - at[i]).map((it, i) =>
    it >= wanted[i] - 0.1 && it < wanted[i] + 2 ? wanted[i] : Math.floor(it));
  return waits.length ? `again after ${waits.join(', ')} s` : 'not again';
}

async function grpcJs() {
  const retryPolicy = {
    maxAttempts: 4, initialBackoff: '0.1s', maxBackoff: '1s', backoffMultiplier: 2,
    retryableStatusCodes: ['RESOURCE_EXHAUSTED', 'UNAVAILABLE'],
  };
  const config = JSON.stringify({ methodConfig: [{ name: [{}], retryPolicy }] });
  const channel = new grpc.Client(address, grpc.credentials.createInsecure(), { 'grpc.service_config': config });
  const said = (path, seconds) => new Promise((done) => {
    const options = seconds ? { deadline: Date.now() + seconds * 1000 } : {};
    const told = (error) => {
      const after = error?.metadata.get('retry-after')[0] ?? 'none';
      done(error ? `status ${error.code}, \`retry-after\` ${after}` : 'OK');
    };
    channel.makeUnaryRequest(path, () => Buffer.alloc(0), (it) => it, null, new grpc.Metadata(), options, told);
  });
  for (const [asked, route, deadline, expected] of [
    ['2 s, deadline 5 s', 'grpc-2s', 5, 'again after 2 s: OK'],
    ['2 s, no deadline', 'grpc-2s', 0, 'again after 2 s: OK'],
    ['2 s, deadline 1 s', 'grpc-2s', 1, 'not again: status 8, `retry-after` 2'],
    ['1 h, no deadline', 'grpc-1h', 0, 'not again: status 8, `retry-after` 3600'],
    ['no decision', 'grpc-down', 9, 'again after 1, 1, 1 s: status 14, `retry-after` none'],
  ]) {
    const path = `grpc-js-${asked.replace(',', '').replaceAll(' ', '-')}`;
    const admitted = route !== 'grpc-down';
    if (admitted) await said(`/${route}/${path}`, 5);
    const last = await said(`/${route}/${path}`, deadline);
    row('gRPC', version('@grpc/grpc-js', 'grpc-js'), asked, expected, `${await again(path, expected, admitted)}: ${last}`);
  }
}

async function connect() {
  const snake = (name) => name.replaceAll(/\B[A-Z]/g, '_$&').toLowerCase();
  const empty = { inputType: '.google.protobuf.Empty', outputType: '.google.protobuf.Empty' };
  const file = create(FileDescriptorProtoSchema, {
    name: 'calls.proto', syntax: 'proto3', package: 'calls', dependency: ['google/protobuf/empty.proto'],
    service: [{ name: 'Calls', method: [
      { name: 'Post', ...empty },
      { name: 'Get', ...empty, options: { idempotencyLevel: 1 } },
      { name: 'Stream', ...empty, serverStreaming: true },
    ] }],
  });
  const service = createFileRegistry(file, () => file_google_protobuf_empty.proto).getService('calls.Calls');
  for (const [method, useHttpGet, expected] of [
    ['post', false, 'resource_exhausted, `retry-after` 3600'],
    ['get', true, 'resource_exhausted, `retry-after` 3600'],
    ['stream', false, 'resource_exhausted, `retry-after` 3600'],
  ]) {
    const baseUrl = `http://${address}/connect/connect-es-${method}`;
    const client = createClient(service, createConnectTransport({ baseUrl, httpVersion: '1.1', useHttpGet }));
    const said = async () => {
      try {
        const answer = client[method]({});
        if (method === 'stream') for await (const _ of answer); else await answer;
        return 'OK';
      } catch (error) {
        const { code, metadata } = ConnectError.from(error);
        return `${snake(Code[code])}, \`retry-after\` ${metadata.get('retry-after')}`;
      }
    };
    await said();
    row('Connect', version('@connectrpc/connect', 'connect-es'), `${method.toUpperCase()}, 1 h`, expected, await said());
  }
}

// An admitted call and a denied one.
async function calls(protocol, client, asked, path, call, expected) {
  await call();
  const last = await call().then(() => 'OK', (error) => error.constructor.name);
  row(protocol, client, asked, expected, `${await again(path, expected)}: ${last}`);
}

async function octokit() {
  const log = { debug() {}, info() {}, warn() {}, error() {} };
  for (const [asked, route, expected] of [
    ['16 s, a 429', 'github', 'again after 1, 4, 9, 3 s: OK'],
    ['2 s, a 403', 'github-403', 'again after 3 s: OK'],
  ]) {
    const client = new Octokit({ baseUrl: `http://${address}/${route}/octokit-${route}`, log });
    const call = () => client.request('GET /');
    await calls('`Headers::GitHub`', version('octokit'), asked, `octokit-${route}`, call, expected);
  }
}

async function models() {
  for (const [name, shown, Api] of [['openai', 'openai', OpenAI], ['@anthropic-ai/sdk', 'anthropic', Anthropic]]) {
    for (const [asked, route, expected] of [
      ['2 s', 'models-2s', 'again after 2 s: OK'],
      ['1 h', 'models', 'not again: RateLimitError'],
    ]) {
      const path = `${shown}-npm-${route}`;
      const client = new Api({ apiKey: 'key', baseURL: `http://${address}/${route}/${path}` });
      await calls('`x-should-retry`', `${version(name, shown)} (npm)`, asked, path, () => client.models.list(), expected);
    }
  }
}

// The longest wait that is told: timers of Node.js still wait for it.
async function longest() {
  const url = `http://${address}/plain-30d`;
  const anthropic = new Anthropic({ apiKey: 'key', baseURL: `${url}/anthropic-30d` });
  for (const [client, path, call] of [
    [version('got'), 'got-30d', () => got(`${url}/got-30d`)],
    [`${version('@anthropic-ai/sdk', 'anthropic')} (npm)`, 'anthropic-30d', () => anthropic.models.list()],
  ]) {
    await call();
    const waits = new Promise((done) => setTimeout(done, 3000, 'waits'));
    const last = await Promise.race([waits, call().then(() => 'OK', (error) => error.constructor.name)]);
    row('`retry-after`', client, '30 days, in 3 s', 'not again: waits', `${await again(path, '')}: ${last}`);
  }
  const call = () => got(`http://${address}/plain-2s/got-2s`);
  await calls('`retry-after`', version('got'), '2 s', 'got-2s', call, 'again after 2 s: OK');
}

async function mcp() {
  const client = new Client({ name: 'clients', version: '0' });
  await client.connect(new StreamableHTTPClientTransport(new URL(`http://${address}/mcp/mcp-npm`)));
  const told = await client.callTool({ name: 'tool' }).catch((error) => `${error.code}, ${error.message}`);
  const error = '{"code":-32000,"message":"quota exceeded: calls","data":{"quotas":["calls"],"retry_after_s":3600}}';
  const expected = `429, Streamable HTTP error: Error POSTing to endpoint: {"jsonrpc":"2.0","id":null,"error":${error}}`;
  row('`Form::JsonRpc`', `${version('@modelcontextprotocol/sdk', 'mcp')} (npm)`, 'tools/call, 1 h', expected, told);
}

async function stripe() {
  for (const [asked, route, expected] of [
    ['1 h, a body with `error`', 'errors', 'not again: StripeRateLimitError'],
    ['1 h, a problem document', 'plain', 'not again: OK'],
  ]) {
    const client = new Stripe('key', { host, port, protocol: 'http' });
    const call = () => client.rawRequest('GET', `/${route}/stripe-${route}`);
    await calls('Stripe', version('stripe'), asked, `stripe-${route}`, call, expected);
  }
}

// The first connection is admitted and ends; it is opened again at once.
const streams = [
  ['2 s, `retry:`', 'events', 'again after 2 s: open'],
  ['2 s, a 429', 'streams', 'not again: closed'],
];

async function events() {
  for (const [asked, route, expected] of streams) {
    const source = new EventSource(`http://${address}/${route}/eventsource-${route}`);
    const last = await new Promise((done) => {
      let messages = 0;
      source.onmessage = () => (messages += 1) === 2 && done('open');
      source.onerror = () => source.readyState === 2 && done('closed');
      setTimeout(() => done('neither'), 9000);
    });
    source.close();
    row('event stream', version('eventsource'), asked, expected, `${await again(`eventsource-${route}`, expected)}: ${last}`);
  }
}

// The page says what it saw as a request of a case of its own.
async function chromium() {
  let shown;
  try {
    shown = `Chromium ${execFileSync('chromium', ['--version'], { stdio: 'pipe' }).toString().match(/[\d.]+/)[0]}`;
  } catch {
    for (const [asked] of streams) console.log(`| event stream | Chromium | ${asked} | not run: it is not installed |`);
    return;
  }
  for (const [asked, route, expected] of streams) {
    const folder = mkdtempSync(`${tmpdir()}/clients-`);
    const browser = spawn('chromium', [
      '--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run',
      '--disable-background-networking', '--disable-component-update', '--disable-sync',
      `--user-data-dir=${folder}`, `http://${address}/page/chromium?${route}`,
    ], { stdio: 'ignore' });
    const ended = new Promise((done) => browser.once('exit', done));
    let last = 'neither';
    for (const end = Date.now() + 30000; last === 'neither' && Date.now() < end;) {
      await new Promise((done) => setTimeout(done, 200));
      for (const said of ['open', 'closed'])
        if ((await seen(`chromium-${route}-${said}`)).length) last = said;
    }
    // A closed one has the time to come again.
    if (last === 'closed') await new Promise((done) => setTimeout(done, 3000));
    browser.kill();
    await ended;
    // Its other processes write a moment longer, and `maxRetries` does not look for new files.
    for (let tries = 1; ; tries += 1) {
      try {
        rmSync(folder, { recursive: true, force: true });
        break;
      } catch (error) {
        if (tries === 20) throw error;
        await new Promise((done) => setTimeout(done, 250));
      }
    }
    row('event stream', shown, asked, expected, `${await again(`chromium-${route}`, expected)}: ${last}`);
  }
}

// What a person sees who follows a link that is denied; whether what a page loads is asked for again.
async function browsers() {
  const words = 'Too many requests for /links/';
  const cases = {
    'a link, 1 h': ['its own page', 'the problem document'],
    'a link, 1 h, HTML': ['our words', 'our words'],
    // What one of them does not ask for again.
    '`import()`, 2 s': ['not again: TypeError'],
    'a preload, 2 s': [, 'not again: error'],
  };
  for (const [at, [shown, browser, program]] of [['Firefox', 'firefox', 'firefox'], ['Chromium', 'chrome', 'chromium']].entries()) {
    let executablePath;
    try {
      executablePath = execFileSync('which', [program]).toString().trim();
    } catch {
      for (const asked in cases) console.log(`| browser | ${shown} | ${asked} | not run: it is not installed |`);
      continue;
    }
    const args = browser === 'chrome' ? ['--no-sandbox', '--disable-gpu'] : [];
    const running = await puppeteer.launch({ browser, executablePath, args });
    const client = `${shown} ${(await running.version()).split('/')[1]}`;
    const page = await running.newPage();
    const told = {};
    for (const [asked, route] of [['a link, 1 h', 'plain'], ['a link, 1 h, HTML', 'links']]) {
      const url = `http://${address}/${route}/${browser}-${route}`;
      await page.goto(url);
      // Firefox says that this has failed.
      await page.goto(url).catch(() => {});
      const [from, text] = await page.evaluate(() => [document.documentURI, document.body.innerText]);
      const other = text.includes('quota-exceeded') ? 'the problem document' : text;
      told[asked] = from !== url ? 'its own page' : text.startsWith(words) ? 'our words' : other;
    }
    for (const [asked, how] of [['`import()`, 2 s', 'import'], ['a preload, 2 s', 'preload']]) {
      if (!cases[asked][at]) continue;
      await page.goto(`http://${address}/blank/${browser}`);
      const path = `${browser}-${how}`;
      const url = `http://${address}/modules/${path}`;
      await fetch(url);
      const loads = (rel) => page.evaluate((url, how, rel) => {
        if (how === 'import') return import(url).then(() => 'OK', (error) => error.name);
        const element = document.createElement(rel);
        Object.assign(element, rel === 'link' ? { rel: how, as: 'script', href: url } : { src: url });
        return new Promise((done) => {
          element.onload = () => done('OK');
          element.onerror = () => done('error');
          document.head.append(element);
        });
      }, url, how, rel);
      await loads('link');
      await new Promise((done) => setTimeout(done, 2500));
      const last = await loads('script');
      told[asked] = `${await again(path, cases[asked][at])}: ${last}`;
    }
    await running.close();
    for (const asked in told) row('browser', client, asked, cases[asked][at], told[asked]);
  }
}

for (const part of [grpcJs, connect, octokit, models, longest, mcp, stripe, events, chromium, browsers]) await part();
process.exit(wrong);
