/** The examples run as their comments say. */
import { spawn } from 'node:child_process'
import { readdirSync, readFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { expect, onTestFinished, test } from 'vitest'
import { freshNamespace, redisUrl, testBus } from './support/bus.ts'
import { eventually } from './support/eventually.ts'

const root = resolve(import.meta.dirname, '..')

const textOf = (file: string) => readFileSync(join(root, 'examples', file), 'utf8')

/** The environment variable by which its namespace can be chosen. */
const variableOf = (file: string) => /process\.env\.(\w+_NAMESPACE)/.exec(textOf(file))![1]!

function startExample(file: string, namespace: string) {
  const child = spawn(process.execPath, ['dist/cli/main.js', 'worker', `examples/${file}`], {
    cwd: root,
    env: { ...process.env, BUSBAR_REDIS_URL: redisUrl(), [variableOf(file)]: namespace, NO_COLOR: '1' },
  })
  onTestFinished(() => void child.kill('SIGKILL'))
  let output = ''
  for (const stream of [child.stdout, child.stderr])
    stream.on('data', (chunk) => {
      output += chunk
    })
  return { child, output: () => output }
}

test('stream-processor.ts keeps totals, two workers share it, and nothing is counted twice', async () => {
  const namespace = freshNamespace()
  const bus = testBus({ namespace })
  const customers = ['ada', 'bob', 'cleo']
  const workers = [startExample('stream-processor.ts', namespace), startExample('stream-processor.ts', namespace)]
  for (let n = 0; n < 4; n += 1)
    for (const customer of customers)
      await bus.publish('order.paid', { customer, total: 30 }, { key: `customer:${customer}` })
  for (const customer of customers)
    await eventually(async () => (await bus.state<{ spent: number }>(`totals:${customer}`))?.spent === 120)
  const regulars: unknown[] = []
  for await (const event of bus.log.read({ match: 'customer.regular' })) regulars.push(event.data)
  expect(regulars).toHaveLength(3)
  await eventually(() => workers.some(({ output }) => output().includes('is a regular now')))
  // One that is still starting would end by the signal.
  await eventually(() => workers.every((worker) => worker.output().includes('a worker is running')))
  for (const { child } of workers) child.kill('SIGTERM')
  await eventually(() => workers.every(({ child }) => child.exitCode === 0))
})

test('worker.ts sends mails by turns, tries again what was busy, gives up what is no address', async () => {
  const namespace = freshNamespace()
  const bus = testBus({ namespace })
  const workers = [startExample('worker.ts', namespace), startExample('worker.ts', namespace)]
  const output = () => workers.map((worker) => worker.output()).join('')
  await eventually(async () => (await bus.subscriptions.list()).length === 1)
  for (const to of ['ada@example.com', 'busy@example.com', 'nowhere'])
    for (const tenant of ['acme', 'globex']) await bus.publish('order.paid', { to }, { tenant })
  const queue = await bus.queues.open('mails')
  await queue.send({ to: 'sent@example.com' }, { tenant: 'globex' })
  await eventually(async () => (await bus.queues.get('mails')).out === 5)
  await eventually(() => output().includes('globex: mail to sent@example.com, attempt 1'))
  for (const tenant of ['acme', 'globex']) {
    expect(output()).toContain(`${tenant}: mail to ada@example.com, attempt 1`)
    expect(output()).toContain(`${tenant}: mail to busy@example.com, attempt 2`)
  }
  expect(await bus.queues.dead.reasons('mails')).toMatchObject([{ reason: '"nowhere" is no address', letters: 2 }])
  // One that is still starting would end by the signal.
  await eventually(() => workers.every((worker) => worker.output().includes('a worker is running')))
  for (const { child } of workers) child.kill('SIGTERM')
  await eventually(() => workers.every(({ child }) => child.exitCode === 0))
})

test.each(readdirSync(join(root, 'examples')))(
  'the commands of %s speak of its namespace, which the snippets of the README leave alone',
  (file) => {
    const text = textOf(file)
    const namespace = /_NAMESPACE \?\? '(\w+)'/.exec(text)![1]!
    const named = [...text.matchAll(/--namespace (\w+)/g)].map((found) => found[1])
    expect(named.length).toBeGreaterThan(1)
    expect([...new Set(named)]).toEqual([namespace])
    expect(readFileSync(join(root, 'README.md'), 'utf8')).not.toContain(`namespace: '${namespace}'`)
  },
)
