// A host on the official TypeScript SDK (1.x): host.mjs SDK_FOLDER MODE LABEL COMMAND...
//
// Runs the checks of MODE (fake, everything, calculator or together) in one session with a server that COMMAND
// starts, and prints one JSON line a check: {"check", "ok", "detail"}. Ends with 1 if one failed.
import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';

const [folder, mode, label, command, ...args] = process.argv.slice(2);
const load = createRequire(join(folder, 'package.json'));
const { Client } = load('@modelcontextprotocol/sdk/client/index.js');
const { StdioClientTransport } = load('@modelcontextprotocol/sdk/client/stdio.js');
const types = load('@modelcontextprotocol/sdk/types.js');

const PATIENCE_MS = 30_000;
const client = new Client({ name: 'mcpd-test-host', version: '1' }, { capabilities: {} });
const logged = [];
const updated = [];
let listChanges = 0;
let failed = 0;
client.setNotificationHandler(types.LoggingMessageNotificationSchema, message => { logged.push(message.params); });
client.setNotificationHandler(types.ResourceUpdatedNotificationSchema, message => { updated.push(message.params.uri); });
client.setNotificationHandler(types.ToolListChangedNotificationSchema, () => { listChanges += 1; });

async function check(name, body) {
  let line;
  try {
    line = { check: name, ok: true, detail: String(await body()) };
  } catch (error) {
    failed += 1;
    line = { check: name, ok: false, detail: `${error.name}: ${error.message}` };
  }
  console.log(JSON.stringify(line));
}

async function until(what, condition) {
  const limit = performance.now() + PATIENCE_MS;
  while (!condition()) {
    assert.ok(performance.now() < limit, `${what}: not in time`);
    await delay(20);
  }
}

const call = (name, input = {}, options) => client.callTool({ name, arguments: input }, undefined, options);

async function text(name, input) {
  const result = await call(name, input);
  assert.ok(!result.isError, JSON.stringify(result));
  return result.content[0].text;
}

async function codeOf(promise) {
  try {
    await promise;
  } catch (error) {
    return error.code;
  }
  throw new Error('no error came');
}

async function pages(fetch, field) {
  const items = [];
  for (let cursor; ;) {
    const page = await fetch(cursor === undefined ? {} : { cursor });
    items.push(...page[field]);
    cursor = page.nextCursor;
    if (cursor === undefined) return items;
  }
}

const listTools = async () => (await pages(params => client.listTools(params), 'tools')).map(tool => tool.name);

const fake = {
  async list() {
    const names = await listTools();
    assert.equal(new Set(names).size, names.length);
    assert.ok(names.includes('sum'));
    return `${names.length} tools`;
  },
  async call() {
    assert.equal(await text('sum', { a: 2, b: 3 }), '5');
    return '5';
  },
  async structured() {
    const result = await call('echo', { z: 1, deep: { list: [1, null, 'x'] } });
    assert.deepEqual(result.structuredContent, { z: 1, deep: { list: [1, null, 'x'] } });
    return 'unchanged';
  },
  async progress() {
    const seen = [];
    await call('progress', { n: 4, ms: 20 }, { onprogress: progress => seen.push(progress.progress) });
    await until('progress', () => seen.length >= 3);
    return seen;
  },
  async cancel() {
    const controller = new AbortController();
    const open = call('sleep', { ms: 60_000 }, { signal: controller.signal });
    await delay(200);
    controller.abort('enough');
    await assert.rejects(open);
    assert.equal(await text('sum', { a: 1 }), '1');
    return 'the session goes on';
  },
  async error() {
    assert.equal(await codeOf(call('no-such-tool')), -32602);
    return '-32602';
  },
  async subscribe() {
    await client.subscribeResource({ uri: 'fake://one' });
    await call('update', { uri: 'fake://one' });
    await until('the update', () => updated.includes('fake://one'));
    await client.unsubscribeResource({ uri: 'fake://one' });
    return 'heard';
  },
  async list_changed() {
    const before = listChanges;
    await call('list_changed', { kind: 'tools' });
    await until('the change', () => listChanges > before);
    return 'heard';
  },
  async log_level() {
    await client.setLoggingLevel('warning');
    logged.length = 0;
    await call('log', { level: 'info', text: 'too quiet' });
    await call('log', { level: 'error', text: 'loud enough' });
    await until('the message', () => logged.length > 0);
    assert.deepEqual(logged.map(params => params.level), ['error']);
    return 'filtered';
  },
  async prompts() {
    const { prompts } = await client.listPrompts();
    return (await client.getPrompt({ name: prompts[0].name })).messages[0].content.text;
  },
  async completion() {
    const ref = { type: 'ref/prompt', name: 'greet' };
    return (await client.complete({ ref, argument: { name: 'a', value: 'o' } })).completion.values;
  },
  async large() {
    assert.equal((await text('big', { bytes: 5_000_000 })).length, 5_000_000);
    return '5 MB';
  },
  async crash() {
    const open = codeOf(call('sleep', { ms: 60_000 }));
    await delay(300);
    assert.equal(await codeOf(call('crash')), -31001);
    assert.equal(await open, -31001);
    assert.equal(await text('sum', { a: 4 }), '4');
    return 'two errors, and the same session goes on';
  },
};

const everything = {
  async list() {
    const names = await listTools();
    const resources = await pages(params => client.listResources(params), 'resources');
    const { resourceTemplates } = await client.listResourceTemplates();
    assert.ok(names.length >= 10 && resources.length > 0 && resourceTemplates.length > 0);
    return `${names.length} tools, ${resources.length} resources`;
  },
  async call() {
    assert.match(await text('echo', { message: 'hello' }), /hello/);
    assert.match(await text('get-sum', { a: 2, b: 3 }), /5/);
    return 'echo and sum';
  },
  async progress() {
    const seen = [];
    const onprogress = progress => seen.push(progress.progress);
    await call('trigger-long-running-operation', { duration: 1, steps: 4 }, { onprogress });
    await until('progress', () => seen.length > 0);
    return seen;
  },
  async cancel() {
    const controller = new AbortController();
    const open = call('trigger-long-running-operation', { duration: 30, steps: 5 }, { signal: controller.signal });
    await delay(200);
    controller.abort();
    await assert.rejects(open);
    assert.match(await text('echo', { message: 'still here' }), /still here/);
    return 'the session goes on';
  },
  async error() {
    const result = await call('get-sum', { a: 'not a number', b: 3 });
    assert.ok(result.isError);
    return 'isError';
  },
  async structured() {
    const result = await call('get-structured-content', { location: 'Chicago' });
    assert.ok(result.structuredContent);
    return JSON.stringify(result.structuredContent);
  },
  async read() {
    const { contents } = await client.readResource({ uri: 'demo://resource/dynamic/text/1' });
    return contents[0].mimeType;
  },
  async subscribe() {
    const uri = 'demo://resource/dynamic/text/1';
    await client.subscribeResource({ uri });
    updated.length = 0;
    await call('toggle-subscriber-updates');
    await until('an update', () => updated.includes(uri));
    await call('toggle-subscriber-updates');
    await client.unsubscribeResource({ uri });
    return 'heard';
  },
  async log_level() {
    await client.setLoggingLevel('error');
    return 'set';
  },
  async prompts() {
    const { messages } = await client.getPrompt({ name: 'args-prompt', arguments: { city: 'Vienna' } });
    assert.match(messages[0].content.text, /Vienna/);
    return messages[0].content.text;
  },
  async completion() {
    const ref = { type: 'ref/prompt', name: 'completable-prompt' };
    const { completion } = await client.complete({ ref, argument: { name: 'department', value: 'E' } });
    assert.ok(completion.values.length > 0);
    return completion.values;
  },
};

const calculator = {
  async list() {
    const names = await listTools();
    for (const name of ['add', 'subtract', 'multiply', 'divide']) assert.ok(names.includes(name), names.join());
    return names;
  },
  async call() {
    assert.equal(await text('add', { a: 2, b: 3 }), '5');
    return '5';
  },
  async error() {
    const result = await call('divide', { a: 1, b: 0 });
    assert.ok(result.isError);
    return 'isError';
  },
};

const time = {
  async list() {
    const names = await listTools();
    assert.ok(names.includes('convert_time'), names.join());
    return names;
  },
  call: () => text('convert_time', { source_timezone: 'Europe/Vienna', time: '12:00', target_timezone: 'Asia/Tokyo' }),
};

// Many calls at once beside another host that uses the same ids and tokens.
const together = {
  async calls() {
    let next = 0;
    let done = 0;
    let steps = 0;
    const one = async number => {
      if (number % 10 === 0) {
        const seen = [];
        await call('progress', { n: 2, ms: 5 }, { onprogress: progress => seen.push(progress.progress) });
        assert.ok(seen.length <= 2, seen.join());
        steps += seen.length;
      } else {
        const mine = `${label} ${number}`;
        assert.equal(await text('sleep', { ms: number % 7, text: mine }), mine);
      }
      done += 1;
    };
    const lane = async () => { while (next < 300) await one(next++); };
    await Promise.all(Array.from({ length: 20 }, lane));
    assert.equal(done, 300);
    assert.ok(steps >= 30, `${steps} steps`);
    return `${done} calls, each answered with its own, ${steps} steps of progress`;
  },
  async cancel() {
    const controller = new AbortController();
    const kept = text('sleep', { ms: 1_500, text: label });
    const open = call('sleep', { ms: 60_000 }, { signal: controller.signal });
    await delay(200);
    controller.abort('enough');
    await assert.rejects(open);
    assert.equal(await kept, label);
    return 'the other call goes on';
  },
  async level() {
    await client.setLoggingLevel('debug');
    logged.length = 0;
    for (const level of ['debug', 'error']) await call('log', { level, text: label });
    await until('both', () => logged.filter(params => params.data === label).length >= 2);
    return 'debug';
  },
  async subscribe() {
    const uri = `fake://${label}`;
    await client.subscribeResource({ uri });
    await call('update', { uri });
    await until('the update', () => updated.includes(uri));
    assert.ok(updated.every(seen => seen === uri), updated.join());
    return uri;
  },
};

const checks = { fake, everything, calculator, time, together }[mode];
await check('initialize', async () => {
  await client.connect(new StdioClientTransport({ command, args, env: { ...process.env } }));
  return client.getServerVersion().name;
});
if (failed === 0) {
  for (const [name, body] of Object.entries(checks)) await check(name, body);
}
await client.close();
process.exit(failed === 0 ? 0 : 1);
