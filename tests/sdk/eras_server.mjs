// A server on the official TypeScript SDK (2.x) with one tool a behaviour: eras_server.mjs FOLDER
//
// FOLDER has node_modules. The SDK serves either era, chosen by the first request; the key `protocol` of mcpd
// says which that is. The tools are those of eras_server.py.
import { createRequire } from 'node:module';
import { join, resolve } from 'node:path';

const load = createRequire(join(resolve(process.argv[2]), 'package.json'));
const { McpServer, acceptedContent, fromJsonSchema, inputRequired } = load('@modelcontextprotocol/server');
const { serveStdio } = load('@modelcontextprotocol/server/stdio');

const sleep = ms => new Promise(resolve => setTimeout(resolve, ms));
const say = text => ({ content: [{ type: 'text', text: String(text) }] });
const object = properties => ({ type: 'object', properties, required: Object.keys(properties) });
const string = { type: 'string' };
const state = { stopped: 0, touched: 0 };

function build() {
    const server = new McpServer({ name: 'eras', version: '1' }, {
        capabilities: { tools: { listChanged: true }, resources: { listChanged: true, subscribe: true }, logging: {} },
    });
    const tool = (name, properties, run) => server.registerTool(
        name, { description: name, inputSchema: fromJsonSchema(object(properties)) }, run);

    tool('echo', { text: string }, async ({ text }) => say(text));
    tool('fail', {}, async () => { throw new Error('it failed'); });
    tool('big', { size: { type: 'number' } }, async ({ size }) => say('x'.repeat(size)));
    tool('stopped', {}, async () => say(state.stopped));
    tool('die', {}, async () => process.exit(3));
    tool('long', {}, async (_, { mcpReq: { signal, _meta, notify } }) => {
        signal.addEventListener('abort', () => { state.stopped += 1; }, { once: true });
        for (let progress = 1; progress < 1200 && !signal.aborted; progress += 1) {
            const params = { progressToken: _meta?.progressToken, progress, total: 1200 };
            if (params.progressToken !== undefined) await notify({ method: 'notifications/progress', params });
            await sleep(50);
        }
        return say('nobody cancelled');
    });
    tool('ask', {}, async (_, ctx) => {
        const answer = acceptedContent(ctx.mcpReq.inputResponses, 'who');
        if (answer) return say(`hello ${answer.name}`);
        const question = inputRequired.elicit({ message: 'Who are you?', requestedSchema: object({ name: string }) });
        return inputRequired({ inputRequests: { who: question } });
    });
    tool('touch', {}, async () => {
        state.touched += 1;
        server.sendToolListChanged();
        await server.server.sendResourceUpdated({ uri: 'eras://counter' });
        return say(state.touched);
    });
    server.registerResource('counter', 'eras://counter', { mimeType: 'text/plain' },
        async uri => ({ contents: [{ uri: uri.href, text: String(state.touched) }] }));
    server.server.setRequestHandler('resources/subscribe', async () => ({}));
    server.server.setRequestHandler('resources/unsubscribe', async () => ({}));
    server.registerPrompt('review', { description: 'A review', argsSchema: fromJsonSchema(object({ language: string })) },
        async ({ language }) => ({
            messages: [{ role: 'user', content: { type: 'text', text: `Review this ${language}.` } }],
        }));
    return server;
}

serveStdio(build, { legacy: 'serve' });
