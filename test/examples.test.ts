/** The examples run as their comments say. */
import { spawn } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { expect, onTestFinished, test } from 'vitest'
import { freshNamespace, redisUrl, testBus } from './support/bus.ts'
import { eventually } from './support/eventually.ts'

const root = resolve(import.meta.dirname, '..')

function startExample(file: string, namespace: string) {
  const child = spawn(process.execPath, ['dist/cli/main.js', 'worker', `examples/${file}`], {
    cwd: root,
    env: { ...process.env, BUSBAR_REDIS_URL: redisUrl(), LOYALTY_NAMESPACE: namespace, NO_COLOR: '1' },
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
  for (const { child } of workers) child.kill('SIGTERM')
  await eventually(() => workers.every(({ child }) => child.exitCode === 0))
})

test('its commands speak of its namespace, which the snippets of the README leave alone', () => {
  const text = readFileSync(join(root, 'examples/stream-processor.ts'), 'utf8')
  const namespace = /_NAMESPACE \?\? '(\w+)'/.exec(text)![1]!
  const named = [...text.matchAll(/--namespace (\w+)/g)].map((found) => found[1])
  expect(named).toEqual([namespace, namespace])
  expect(readFileSync(join(root, 'README.md'), 'utf8')).not.toContain(`namespace: '${namespace}'`)
})
