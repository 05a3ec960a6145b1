/** `busbar worker`: which modules it loads and how, which buses it finds in them, what it runs, and how it ends. */
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { describe, expect, test } from 'vitest'
import { glob } from '../src/cli/glob.ts'
import { appFolder } from './support/app.ts'
import { freshNamespace, redisUrl, testBus } from './support/bus.ts'
import { runCli, startCli } from './support/cli.ts'

/** A bus that says what it is told; its names are declared without anything behind them. */
const sayingBus = (name: string, declared: readonly string[]) => `
const ${name} = busbar({ redis: process.env.APP_REDIS, namespace: process.env.APP_NAMESPACE })
const { run, close } = ${name}
Object.assign(${name}, {
  declared: () => ${JSON.stringify(declared)},
  run(options: { only?: readonly string[]; signals?: boolean }) {
    console.log('run ${name}', JSON.stringify(options))
    return run.call(${name}, { signals: false })
  },
  close(options?: object) {
    console.log('close ${name}')
    return close.call(${name}, options)
  },
})`

function place() {
  const namespace = freshNamespace()
  testBus({ namespace })
  return { namespace, env: { APP_REDIS: redisUrl(), APP_NAMESPACE: namespace } }
}

const running = /^Ctrl-C stops it/

describe('modules', () => {
  test('TypeScript with its imports, by path and by pattern; a bus that is exported twice runs once', async () => {
    const folder = appFolder({
      'app.ts': `import { busbar } from 'busbar'
import { kind } from './names.js'
import { suffix } from './more'
${sayingBus('bus', [])}
enum Level { High = 'high' }
console.log('loaded', kind, suffix, Level.High)
export { bus, bus as again }
export default bus`,
      'names.ts': `export const kind: string = 'typed'`,
      'names.js': `export const kind = 'built last week'`,
      'more/index.ts': `export const suffix: number = 2`,
      'jobs/a.mts': `export { bus } from '../app.ts'\nconsole.log('loaded a')`,
      'jobs/b.js': `console.log('loaded b')`,
      'jobs/b.d.ts': `export declare const broken: never = `,
      'jobs/notes.md': '# no module',
    })
    const { namespace, env } = place()
    const worker = startCli(['worker', join(folder, 'app.ts'), `${folder}/jobs/*`], env)
    await worker.waitForLine(running)
    const screen = worker.stdout.join('\n')
    expect(screen).toContain('loaded typed 2 high\nloaded a\nloaded b\nrun bus {"signals":false}\nBusbar ')
    expect(screen).toContain(
      `\n  Namespace  ${namespace}\n  Runs       no queue, no processor, no webhook, no task: call queue.work(…), bus.processor(…), bus.webhook(…) or bus.task(…) in the module, where the bus is made\n  Worker     `,
    )
    expect(screen.match(/run bus/g)).toHaveLength(1)
    worker.kill('SIGTERM')
    expect(await worker.exited).toEqual({ code: 0, signal: null })
  })

  test('patterns', () => {
    const folder = appFolder({ 'a.ts': '', 'b.js': '', '.c.ts': '', 'x/a.ts': '', 'x/y/a.ts': '', 'x/y/ab.mts': '' })
    const cases: Record<string, string[]> = {
      '*.ts': ['a.ts'],
      './*.ts': ['a.ts'],
      '.*.ts': ['.c.ts'],
      '{a,b}.{ts,js}': ['a.ts', 'b.js'],
      '**/a.ts': ['a.ts', 'x/a.ts', 'x/y/a.ts'],
      'x/**/a?.mts': ['x/y/ab.mts'],
      'x/y/../*.ts': ['x/a.ts'],
      [`${folder}/x/*`]: [`${folder}/x/a.ts`],
      'nowhere/*': [],
    }
    for (const [pattern, found] of Object.entries(cases))
      expect([pattern, glob(pattern, folder)]).toEqual([pattern, found])
    expect(glob('../x/*.ts', join(folder, 'x'))).toEqual(['../x/a.ts'])
    expect(glob('**', folder).some((path) => path.includes('node_modules'))).toBe(false)
  })

  test.each([
    ['a syntax error in TypeScript', 'app.ts', 'Module app.ts cannot be loaded: Unexpected "=" (lib.ts:2:17)'],
    ['a syntax error in JavaScript', 'bad.mjs', 'Module bad.mjs cannot be loaded: Unexpected ";" (bad.mjs:3:9)'],
    ['what it throws', 'throws.ts', 'Module throws.ts cannot be loaded: no such luck (throws.ts:4:36)'],
    [
      'an option of the bus',
      'options.ts',
      'Module options.ts cannot be loaded: A setting is not usable:',
      ' (options.ts:2:20)',
    ],
    [
      'a package that is not there',
      'imports.ts',
      "Module imports.ts cannot be loaded: Cannot find package 'nowhere' (missing.ts:2:9)",
    ],
    ['a file that is not there', 'gone.ts', 'Module gone.ts cannot be loaded: Cannot find module ', ' (gone.ts:1:11)'],
    [
      'a name that a package does not have',
      'names.ts',
      "Module names.ts cannot be loaded: The requested module 'busbar' does not provide an export named 'processer' (names.ts:4:3)",
    ],
    [
      'a name that a package does not have, in JavaScript',
      'names.mjs',
      "Module names.mjs cannot be loaded: The requested module 'busbar' does not provide an export named 'processer' (names.mjs:1:10)",
    ],
    [
      'a name that a file does not have',
      'uses.ts',
      'Module uses.ts cannot be loaded: No matching export in "',
      ' (uses.ts:1:10)',
    ],
    ['what a library throws', 'library.mjs', 'Module library.mjs cannot be loaded: no way', 'no way'],
  ])('%s is one message with file and line', async (_, file, message, end = '') => {
    const folder = appFolder({
      'app.ts': `import { x } from './lib'\nexport const y: number = x`,
      'lib.ts': `interface A { a: number }\nexport const x: = 2`,
      'bad.mjs': `\n\nlet b = ;`,
      'throws.ts': `interface A {\n  a: number\n}\nexport const a: A = (() => { throw new Error('no such luck') })()`,
      'missing.ts': `\nimport 'nowhere'`,
      'imports.ts': `import './missing'`,
      'gone.ts': `import './nowhere.ts'`,
      'names.ts': `interface A { a: number }\n\nimport {\n  processer } from 'busbar'\nexport const bus = processer()`,
      'names.mjs': `import { processer } from 'busbar'\nexport const bus = processer()`,
      'uses.ts': `import { gone } from './has'\nexport const bus = gone`,
      'has.ts': `export const here = 1`,
      'library.mjs': `import 'thrower'`,
      'node_modules/thrower/package.json': '{"type":"module","exports":"./index.js"}',
      'node_modules/thrower/index.js': `throw new Error('no way')`,
      'options.ts': `import { busbar } from 'busbar'\nexport const bus = busbar({ partitions: 0 })`,
    })
    const { code, stdout, stderr } = await runCli(['worker', file], { cwd: folder })
    expect([code, stdout]).toEqual([1, ''])
    expect(stderr.startsWith(`error MODULE_FAILED: ${message}`)).toBe(true)
    expect(stderr.trim().endsWith(end)).toBe(true)
    expect(stderr).not.toMatch(/^ +at /m)
  })

  test.each([
    ['no match', ['./jobs/*.ts'], 'MODULE_NOT_FOUND: No module is named, or fits, "./jobs/*.ts", looked for from '],
    ['no file', ['app.js'], 'MODULE_NOT_FOUND: No module is named, or fits, "app.js"'],
    ['a folder', ['lib'], 'PARAMETER_INVALID: Parameter "modules" is a folder; name its modules, as in lib/*.ts'],
    ['no module', ['notes.md'], 'PARAMETER_INVALID: Parameter "modules" must be a module'],
    [
      'no bus',
      ['app.ts', 'lib/a.ts'],
      'BUS_NOT_EXPORTED: No bus is exported from app.ts, lib/a.ts. Export what busbar()',
    ],
  ])('%s ends it with 2', async (_, paths, message) => {
    const folder = appFolder({ 'app.ts': 'export const bus = {}', 'lib/a.ts': 'export {}', 'notes.md': '' })
    const { code, stderr } = await runCli(['worker', ...paths], { cwd: folder })
    expect([code, stderr.slice(0, message.length + 6)]).toEqual([2, `error ${message}`])
  })
})

describe('what runs', () => {
  const app = () =>
    appFolder({
      'app.ts': `import { busbar } from 'busbar'\n${sayingBus('shop', ['search', 'billing'])}\nexport { shop }`,
      // As another copy of the package would make it: nothing in common but the mark.
      'other.ts': `import { busbar } from 'busbar'\n${sayingBus('real', ['mail'])}
const { namespace, telemetry, log } = real
export const bus = {
  [Symbol.for('busbar.bus')]: true, namespace, telemetry, log, worker: 'other-1',
  declared: () => ['mail'], run: (o: object) => real.run(o), close: (o: object) => real.close(o),
}`,
    })

  test('only what is named, on the buses that have it; --json says so', async () => {
    const folder = app()
    const { namespace, env } = place()
    const files = [join(folder, 'app.ts'), join(folder, 'other.ts')]
    const named = startCli(['worker', ...files, '--only', 'search, mail', '--json'], env)
    const first = JSON.parse(await named.waitForLine(/"event":"worker"/))
    expect(first).toMatchObject({ level: 'info', pid: named.pid, modules: files })
    expect(first.buses).toMatchObject([
      { namespace, runs: ['search'], worker: expect.stringMatching(/^.{20}$/) },
      { namespace, runs: ['mail'], worker: 'other-1' },
    ])
    expect(named.stdout).toContain('run shop {"only":["search"],"signals":false}')
    expect(named.stdout).toContain('run real {"only":["mail"],"signals":false}')
    await named.waitForLine(/"event":"bus.started"/)
    named.kill('SIGINT')
    expect(await named.exited).toEqual({ code: 0, signal: null })
    expect(named.stdout.filter((line) => line.startsWith('close')).sort()).toEqual(['close real', 'close shop'])

    const one = startCli(['worker', ...files, '--only', 'mail'], env)
    await one.waitForLine(running)
    expect(one.stdout.join('\n')).toContain(`\n  Runs       mail\n  Worker     other-1\n`)
    expect(one.stdout.some((line) => line.startsWith('run shop'))).toBe(false)
  })

  test('a name that nobody declared: those there are, and nothing is started', async () => {
    const folder = app()
    const { env } = place()
    const ended = await runCli(['worker', 'app.ts', 'other.ts', '--only', 'serch,mail'], { cwd: folder, env })
    expect(ended).toEqual({
      code: 2,
      stdout: '',
      stderr:
        'error NOT_DECLARED: Nothing is declared under "serch"; there is search, billing, mail. Did you mean search?\n',
    })
    const bus = testBus()
    await expect(bus.run({ only: ['serch'] })).rejects.toMatchObject({ code: 'NOT_DECLARED' })
    expect(bus.telemetry.counts().has('redis.connected')).toBe(false)
  })

  test('flags that are for the modules to decide are refused, and say where', async () => {
    const flags = ['--redis', 'redis://:hidden@h', '--namespace', 'x', '--publish-timeout', '1s', '--http-port', '1']
    const { code, stderr } = await runCli(['worker', 'app.ts', ...flags, '--log-level', 'debug'], { cwd: app() })
    expect(code).toBe(2)
    expect(stderr).toContain('error SETTING_INVALID: 4 settings are not usable:')
    expect(stderr).toContain('  - --redis has no effect: set it in the module, busbar({ redis: … })\n')
    expect(stderr).toContain(
      '  - --publish-timeout has no effect: set it in the module, busbar({ publish: { timeout: … } })\n',
    )
    expect(stderr).toContain('  - --http-port has no effect: a worker opens no HTTP door')
    expect(stderr).not.toContain('hidden')
  })

  test('Redis that does not answer ends it with 3', async () => {
    const text = `import { busbar } from 'busbar'
export const bus = busbar({ redis: 'redis://127.0.0.1:1', publish: { timeout: '200ms' } })`
    const ended = await runCli(['worker', 'app.js'], {
      cwd: appFolder({ 'app.js': text, 'package.json': '{"type":"module"}' }),
    })
    expect([ended.code, ended.stderr.slice(0, 24)]).toEqual([3, 'error REDIS_UNAVAILABLE:'])
    expect(ended.stdout).toMatch(/warn +redis\.lost .*ECONNREFUSED/)
  })
})

test('asked to end it drains, whatever else the modules have open; asked twice it ends at once', async () => {
  const folder = appFolder({
    'app.ts': `import { busbar } from 'busbar'
export const bus = busbar({ redis: process.env.APP_REDIS, namespace: process.env.APP_NAMESPACE })
setInterval(() => {}, 1_000)
const { close } = bus
bus.close = async (options) => {
  console.log('draining')
  if (process.env.APP_HANGS) await new Promise(() => {})
  await bus.publish('late.event', 1)
  await close.call(bus, options)
}`,
  })
  const { namespace, env } = place()
  const patient = startCli(['worker', join(folder, 'app.ts')], env)
  await patient.waitForLine(running)
  patient.kill('SIGTERM')
  expect(await patient.exited).toEqual({ code: 0, signal: null })
  expect([...(await testBus({ namespace }).topics())]).toEqual([['late', 1]])

  const impatient = startCli(['worker', join(folder, 'app.ts')], { ...env, APP_HANGS: '1' })
  await impatient.waitForLine(running)
  impatient.kill('SIGTERM')
  await impatient.waitForLine('draining')
  await sleep(300) // it is a time that is waited for
  impatient.kill('SIGTERM')
  expect(await impatient.exited).toEqual({ code: 130, signal: null })
})
