// A host on the official TypeScript SDK (2.x): eras_host.mjs FOLDER MODE COMMAND...
//
// FOLDER has node_modules; MODE is legacy, auto or a version of the modern era. The checks are those of
// eras_host.py, as far as the server has the tools for them, each one JSON line: {"check", "ok", "detail"}.
import { createRequire } from 'node:module';
import { join, resolve } from 'node:path';

const [folder, mode, command, ...args] = process.argv.slice(2);
const load = createRequire(join(resolve(folder), 'package.json'));
const { Client, LOG_LEVEL_META_KEY } = load('@modelcontextprotocol/client');
const { StdioClientTransport } = load('@modelcontextprotocol/client/stdio');

const PATIENCE = 60_000;
const sleep = ms => new Promise(resolve => setTimeout(resolve, ms));
const seen = { logs: [], changes: [] };
let failed = 0;

const client = new Client({ name: 'eras', version: '1' }, {
    capabilities: { sampling: {}, roots: {}, elicitation: {} },
    versionNegotiation: { mode: ['auto', 'legacy'].includes(mode) ? mode : { pin: mode }, probe: { timeoutMs: PATIENCE } },
});
client.setRequestHandler('elicitation/create', () => ({ action: 'accept', content: { name: 'Ada' } }));
client.setRequestHandler('roots/list', () => ({ roots: [{ uri: 'file:///a-root' }] }));
client.setRequestHandler('sampling/createMessage', () => (
    { role: 'assistant', model: 'm', content: { type: 'text', text: 'a thought' } }));
client.setNotificationHandler('notifications/message', note => { seen.logs.push(note.params.data); });
for (const method of ['notifications/resources/updated', 'notifications/tools/list_changed']) {
    client.setNotificationHandler(method, () => { seen.changes.push(method); });
}

function assert(ok, detail) {
    if (!ok) throw new Error(JSON.stringify(detail));
}

async function check(name, body) {
    let ok = true, detail;
    try {
        detail = await body();
    } catch (error) {
        [ok, detail] = [false, `${error.name}: ${error.message}`];
    }
    failed += ok ? 0 : 1;
    console.log(JSON.stringify({ check: name, ok, detail: String(detail ?? '').slice(0, 300) }));
}

async function until(ready, what) {
    for (const end = Date.now() + PATIENCE; !ready(); await sleep(20)) assert(Date.now() < end, `no ${what}`);
}

const call = (name, input = {}, options = {}, _meta = undefined) =>
    client.callTool({ name, arguments: input, ...(_meta && { _meta }) }, { timeout: PATIENCE, ...options });

async function text(name, input, _meta) {
    const result = await call(name, input, {}, _meta);
    assert(!result.isError, result);
    return result.content[0].text;
}

const isModern = () => client.getProtocolEra() === 'modern';
const both = ['notifications/resources/updated', 'notifications/tools/list_changed'];

const checks = {
    async list() {
        const names = [];
        let cursor;
        do {
            const page = await client.listTools({ cursor });
            names.push(...page.tools.map(tool => tool.name));
            cursor = page.nextCursor;
        } while (cursor);
        assert(names.includes('echo') && new Set(names).size === names.length, names);
        checks.names = names;
        return names.length;
    },
    async call() {
        assert(await text('echo', { text: 'grüße \n\u2028' }) === 'grüße \n\u2028', 'another text');
    },
    async many() {
        const numbers = Array.from({ length: 20 }, (_, number) => String(number));
        const answers = await Promise.all(numbers.map(number => text('echo', { text: number })));
        assert(JSON.stringify(answers) === JSON.stringify(numbers), answers);
    },
    // The SDKs drop progress that is read together with the answer, so the call has none.
    async progress_and_cancel() {
        const before = await text('stopped');
        const steps = [];
        const controller = new AbortController();
        const outcome = call('long', {}, { signal: controller.signal, onprogress: step => steps.push(step.progress) })
            .then(() => 'answered', error => error.message);
        await until(() => steps.length >= 3, 'progress');
        controller.abort('enough');
        assert(await outcome !== 'answered' && steps.every((step, at) => !at || step > steps[at - 1]), steps);
        for (const end = Date.now() + PATIENCE; await text('stopped') === before; await sleep(100)) {
            assert(Date.now() < end, 'the server was not told');
        }
        return steps;
    },
    async error() {
        assert((await call('fail')).isError, 'no error');
        assert(await call('no-such-tool').then(result => result.isError, () => true), 'no error');
    },
    async elicitation() {
        assert(await text('ask') === 'hello Ada', 'another answer');
    },
    async sampling() {
        assert(await text('think') === 'a thought', 'another answer');
    },
    async roots() {
        assert(await text('where') === 'file:///a-root', 'another answer');
    },
    async subscribe() {
        const uri = 'eras://counter';
        if (!client.getServerCapabilities()?.resources?.subscribe) return 'not offered';
        let events;
        if (isModern()) {
            events = await client.listen({ toolsListChanged: true, resourceSubscriptions: [uri] });
        } else {
            await client.subscribeResource({ uri });
        }
        seen.changes.length = 0;
        await text('touch');
        await until(() => both.every(method => seen.changes.includes(method)), both);
        await (events ? events.close() : client.unsubscribeResource({ uri }));
        return seen.changes;
    },
    async log() {
        if (!client.getServerCapabilities()?.logging) return 'not offered';
        if (!isModern()) await client.setLoggingLevel('info');
        seen.logs.length = 0;
        await text('log', {}, isModern() ? { [LOG_LEVEL_META_KEY]: 'debug' } : undefined);
        await until(() => seen.logs.length, 'log message');
        return seen.logs[0];
    },
    async read() {
        const { resources } = await client.listResources();
        assert(resources.length === 1 && resources[0].uri === 'eras://counter', resources);
        return (await client.readResource({ uri: resources[0].uri })).contents[0].text;
    },
    async prompts() {
        const { prompts } = await client.listPrompts();
        const got = await client.getPrompt({ name: prompts[0].name, arguments: { language: 'rust' } });
        assert(got.messages[0].content.text.includes('rust'), got);
    },
    async completion() {
        const ref = { type: 'ref/prompt', name: 'review' };
        const { completion } = await client.complete({ ref, argument: { name: 'language', value: 'p' } });
        assert(completion.values.join() === 'python,perl', completion);
    },
    async large() {
        assert((await text('big', { size: 3_000_000 })).length === 3_000_000, 'another length');
    },
    async crash() {
        const code = await call('die').then(() => 'a result', error => error.code);
        assert(code === -31001, code);
        assert(await text('echo', { text: 'again' }) === 'again', 'another text');
    },
};

// What needs a tool that the TypeScript server does not have.
const needs = { sampling: 'think', roots: 'where', log: 'log', completion: 'where' };

await check('connect', async () => {
    await client.connect(new StdioClientTransport({ command, args, env: process.env }), { timeout: PATIENCE });
    return `${client.getNegotiatedProtocolVersion()} ${client.getServerVersion()?.name}`;
});
const leftOut = (process.env.ERAS_LEAVE_OUT ?? '').split(',');
if (!failed) {
    for (const [name, body] of Object.entries(checks).filter(([name]) => !leftOut.includes(name))) {
        if (!needs[name] || checks.names?.includes(needs[name])) await check(name, body);
    }
}
await client.close();
process.exit(failed ? 1 : 0);
