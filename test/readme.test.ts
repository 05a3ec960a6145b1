/** README's snippets, run as they are written: code blocks as files, commands as processes, curl as a request. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest'
import { eventually } from './support/eventually.ts'
import { freePort } from './support/ports.ts'

const root = resolve(import.meta.dirname, '..')
const readme = readFileSync(join(root, 'README.md'), 'utf8')
const blocks = (language: string): string[] =>
  [...readme.matchAll(new RegExp(`^\`\`\`${language}\\n([\\s\\S]*?)^\`\`\``, 'gm'))].map((found) => found[1]!)

let folder: string
let port: number

beforeAll(async () => {
  // A project that has installed busbar: the snippets find it by its name.
  folder = mkdtempSync(join(tmpdir(), 'readme-'))
  port = await freePort()
  mkdirSync(join(folder, 'node_modules', '.bin'), { recursive: true })
  symlinkSync(root, join(folder, 'node_modules', 'busbar'))
  symlinkSync(join(root, 'node_modules', 'zod'), join(folder, 'node_modules', 'zod'))
  symlinkSync(join(root, 'dist', 'cli', 'main.js'), join(folder, 'node_modules', '.bin', 'busbar'))
  writeFileSync(join(folder, 'package.json'), '{ "type": "module", "scripts": { "start": "busbar up" } }')
})

afterAll(() => rmSync(folder, { recursive: true, force: true, maxRetries: 20, retryDelay: 50 }))

function start(command: string, cwd = folder) {
  const env = { ...process.env, BUSBAR_HTTP_PORT: String(port), NO_COLOR: '1' }
  // Detached, so that the whole group can be told to end: neither sh nor npm passes a signal on to what it runs.
  const child = spawn('sh', ['-c', command], { cwd, env, stdio: ['ignore', 'pipe', 'pipe'], detached: true })
  let output = ''
  child.stdout.on('data', (chunk) => {
    output += chunk
  })
  child.stderr.on('data', (chunk) => {
    output += chunk
  })
  return { child, output: () => output }
}

async function run(command: string, cwd = folder): Promise<string> {
  const { child, output } = start(command, cwd)
  const [code] = await once(child, 'close')
  expect(code, `${command}\n${output()}`).toBe(0)
  return output()
}

/** A snippet that goes on until Ctrl-C, once it has said what it is for. */
async function runUntil(said: RegExp, snippet: number): Promise<string> {
  const { child, output } = start(`exec node snippet-${snippet}.js`)
  const closed = once(child, 'close')
  await eventually(() => said.test(output()), { timeoutMs: 30_000, what: 'the snippet' })
  child.kill('SIGINT')
  expect((await closed)[0], output()).toBe(0)
  return output()
}

/** A curl line as a request: a machine with only git, Node and npm may have no curl. */
async function request(command: string): Promise<Response> {
  const line = command.replace(/\\\n/g, ' ').replace('7475', String(port))
  const token = readFileSync(join(folder, '.busbar', 'root-token'), 'utf8').trim()
  const headers = [...line.matchAll(/-H "([^:]+): ([^"]*)"/g)].map(
    ([, name, value]) => [name!, value!.replace('$(cat .busbar/root-token)', token)] as [string, string],
  )
  const body = /-d '([^']*)'/.exec(line)?.[1]
  return fetch(/https?:\S+/.exec(line)![0], {
    method: /-X (\w+)/.exec(line)?.[1] ?? 'GET',
    headers,
    ...(body ? { body } : {}),
  })
}

describe('README', () => {
  test('the code runs as written', async () => {
    const outputs: string[] = []
    for (const [i, code] of blocks('js').entries()) {
      writeFileSync(join(folder, `snippet-${i}.js`), code)
      outputs.push(await (code.includes('bus.run()') ? runUntil(/order\.shipped/, i) : run(`node snippet-${i}.js`)))
    }
    expect(outputs[0]).toMatch(/^order\.placed null \{ total: 42 \}\norder\.paid \d+ \{ total: 42 \}\n/m)
    const handled = outputs[1]!.trim().split('\n')
    expect(handled.map((line) => line.replace(/^partition \d+ /, ''))).toEqual([
      'order.placed { total: 42 }',
      'order.paid { total: 42 }',
      "order.shipped { by: 'post' }",
    ])
    expect(outputs[2]).toBe('mail to ada settled\n')
    expect(outputs[3]).toBe('order:42 pack settled\norder:43 pack settled\norder:42 ship at last\n')
    expect(outputs[4]).toBe("received order.shipped { by: 'post' }\n")
    expect(outputs[5]).toBe("succeeded { synced: 'a/b' }\n")
    expect(outputs[6]).toContain('order:7')
  })

  test('the code runs where the README says that it is saved: inside the clone', async () => {
    expect(readme).toContain('Save a snippet anywhere inside the clone')
    mkdirSync(join(root, '.busbar'), { recursive: true, mode: 0o700 })
    const inside = mkdtempSync(join(root, '.busbar', 'readme-'))
    onTestFinished(() => rmSync(inside, { recursive: true, force: true, maxRetries: 20, retryDelay: 50 }))
    writeFileSync(join(inside, 'try.js'), blocks('js')[6]!)
    expect(await run('node try.js', inside)).toContain('order:7')
  })

  test('the commands run as written', async () => {
    const [begin, tries, curl, tests, queue] = blocks('sh')
    expect(tests).toBe('npm test\n')
    const up = start(begin!)
    try {
      await eventually(() => up.output().includes(String(port)), { timeoutMs: 30_000, what: 'npm start' })
      const outputs: string[] = []
      for (const command of tries!.trim().split('\n')) outputs.push(await run(command))
      expect(outputs[1]).toContain('order:42')
      expect(outputs[2]).toMatch(/order\s+\d/)
      expect((await request(curl!)).status).toBe(201)
      const [sent, worked, queues] = queue!.trim().split('\n')
      expect(await run(sent!)).toMatch(/^id mail\./m)
      const printed = await run(worked!)
      expect(printed).toMatch(/^\{"queue":"mail",.*"data":\{"to":"bob"\}\}\}$/m)
      expect(printed).toMatch(/^drained: 1 done, 0 failed, 0 dead$/m)
      expect(await run(queues!)).toMatch(/^mail +mail\.\* +0 +0 +0 +0 +0 +0 +- +-$/m)
      expect(await run(queues!)).toMatch(/^Nothing runs in namespace shop/m)
    } finally {
      process.kill(-up.child.pid!, 'SIGTERM')
    }
    const [code] = await once(up.child, 'close')
    expect([0, null]).toContain(code)
  })
})
