/** The examples run as their comments say. */
import { spawn } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { readdirSync, readFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { expect, onTestFinished, test } from 'vitest'
import { newSecret } from '../src/webhook-signature.ts'
import { freshNamespace, redisUrl, testBus } from './support/bus.ts'
import { runCli } from './support/cli.ts'
import { eventually } from './support/eventually.ts'
import { batchOf, post, secret } from './support/webhooks.ts'

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

test('[O01] operations.ts synchronises links, and anyone can see what became of it', async () => {
  const namespace = freshNamespace()
  const bus = testBus({ namespace })
  const worker = startExample('operations.ts', namespace)
  await eventually(() => worker.output().includes('a worker is running'))
  const queue = await bus.queues.open('link-sync')
  const sent = await queue.send({ repo: 'ada/engine', accessToken: 's3cret' }, { key: 'link:456', kind: 'manual' })
  expect(await bus.operations.wait(sent.id)).toMatchObject({
    ...{ status: 'succeeded', output: { branches: 2 }, input: { repo: 'ada/engine', accessToken: '[redacted]' } },
    ...{ progress: { done: 2, of: 2 }, log: ['main is up to date', 'next is up to date'] },
  })
  const wrong = await queue.send({ repo: 'nowhere' }, { key: 'link:456' })
  expect(await bus.operations.wait(wrong.id)).toMatchObject({ status: 'failed', attempts: 3, output: null })
  const { secret } = await bus.triggers.create('resync', { queue: 'link-sync', key: 'link:456', data: { repo: 'a/b' } })
  const fired = await bus.triggers.fire(secret)
  expect((await bus.operations.wait(fired.id)).status).toBe('succeeded')
  const { operations } = await bus.operations.page('link:456', { detail: false })
  expect(operations.map(({ id }) => id)).toEqual([fired.id, wrong.id, sent.id])
  expect(worker.output()).toContain('ada/engine: 2 branches, manual')
  worker.child.kill('SIGTERM')
  await eventually(() => worker.child.exitCode === 0)
})

const accounts = [
  ['acme', 'ada'],
  ['acme', 'bob'],
  ['globex', 'ada'],
] as const

test('[Q21] [Q22] ordered-worker.ts books in order through retries, a killed worker and a parked account', async () => {
  const namespace = freshNamespace()
  const bus = testBus({ namespace })
  const workers = [startExample('ordered-worker.ts', namespace), startExample('ordered-worker.ts', namespace)]
  const output = () => workers.map((worker) => worker.output()).join('')
  await eventually(() => workers.every((worker) => worker.output().includes('a worker is running')))
  const made = (tenant: string, name: string, booking: object) =>
    bus.publish('booking.made', booking, { tenant, key: `account:${name}` })
  const booked = async (tenant: string, name: string) =>
    (await bus.log.history(`ledger:account:${name}`, { tenant })).map(({ data }) => (data as { amount: number }).amount)
  const amounts = Array.from({ length: 20 }, (_, n) => n + 1)
  await made('acme', 'dora', { amount: 10, currency: 'EUR' })
  await made('acme', 'dora', { amount: -5 })
  // Before a worker is killed, for what it held lapses with another error.
  await eventually(async () => (await bus.queues.parked.list('bookings'))[0]?.behind === 1)
  expect(await bus.queues.parked.list('bookings')).toMatchObject([
    { object: 'acme/account:dora', error: 'Error: nobody knows what EUR is worth', attempts: 3 },
  ])
  for (const amount of amounts) for (const [tenant, name] of accounts) await made(tenant, name, { amount })
  await eventually(() => workers.every((worker) => worker.output().includes('balance')))
  workers[0]!.child.kill('SIGKILL')
  for (const [tenant, name] of accounts)
    await eventually(async () => (await booked(tenant, name)).length === amounts.length, { timeoutMs: 30_000 })
  for (const [tenant, name] of accounts) {
    expect(await booked(tenant, name)).toEqual(amounts)
    expect(await bus.state(`ledger:account:${name}`, { tenant })).toMatchObject({ balance: 210 })
    for (const { output: said } of workers) {
      const lines = [...said().matchAll(new RegExp(`^${tenant}/account:${name}: (\\d+) USD, balance`, 'gm'))]
      const inOrder = lines.map((found) => Number(found[1]))
      expect(inOrder).toEqual(inOrder.toSorted((a, b) => a - b))
    }
  }
  // Sevens are tried twice, and nothing of their accounts has come between.
  expect(output()).toMatch(/: 7 USD, balance 28, attempt 2\n/)

  expect(await bus.queues.parked.list('bookings')).toHaveLength(1)
  await bus.publish('rate.set', { currency: 'EUR', rate: 2 }, { tenant: 'acme', key: 'rate:EUR' })
  await eventually(() => output().includes('acme: EUR is worth 2'))
  const flags = ['--redis', redisUrl(), '--namespace', namespace]
  const resumed = await runCli(['queue', 'resume', 'bookings', '--object', 'acme/account:dora', ...flags])
  expect(resumed.stdout).toBe('1 object of bookings goes on.\n')
  await eventually(() => output().includes('acme/account:dora: -5 USD, balance 15, attempt 1'))
  expect(output()).toContain('acme/account:dora: 10 EUR, balance 20, attempt 1')
  expect(await booked('acme', 'dora')).toEqual([10, -5])
  workers[1]!.child.kill('SIGTERM')
  await eventually(() => workers[1]!.child.exitCode === 0)
}, 60_000)

/** Runs the command that its comment gives, in a shell of its own, so that both sides of its pipe can be ended. */
function startReceiver(env: Readonly<Record<string, string>>) {
  const command = /^ \* {3}(npx esbuild .* node --input-type=module)/m.exec(textOf('webhook-receiver.ts'))![1]!
  const child = spawn('sh', ['-c', command.replace('PORT=8080 ', '')], {
    ...{ cwd: root, detached: true, env: { ...process.env, ...env } },
  })
  onTestFinished(() => void (child.exitCode === null && process.kill(-child.pid!, 'SIGKILL')))
  const output = { stdout: '', stderr: '' }
  for (const name of ['stdout', 'stderr'] as const)
    child[name].on('data', (chunk) => {
      output[name] += chunk
    })
  return { child, output }
}

test('[W20] webhook-receiver.ts verifies, handles each event once, and is sent again what has failed', async () => {
  const next = newSecret(randomBytes)
  const { child, output } = startReceiver({ PORT: '0', WEBHOOK_SECRET: `${next} ${secret}` })
  const url = await eventually(() => /http:\/\/127\.0\.0\.1:\d+\//.exec(output.stdout)?.[0] ?? false, {
    timeoutMs: 30_000,
  })
  const batch = batchOf([
    { seq: 10, json: '{"total":42}' },
    { seq: 20, type: 'mail.bounced', key: 'mail:1' },
    { seq: 30, prev: 10 },
  ])
  expect(await post(url, { ...batch, body: batch.body.replace('42', '43') })).toMatchObject({ status: 401 })
  expect(await post(url, batch)).toMatchObject({ status: 500, code: 'WEBHOOK_NOT_HANDLED' })
  for (let attempt = 2; attempt < 4; attempt += 1) expect((await post(url, batch)).status).toBe(204)
  expect((await post(url, batchOf([{ seq: 30 }, { seq: 40, prev: 30 }], { secrets: [next] }))).status).toBe(204)
  await eventually(() => output.stdout.includes('3-40'))
  expect(output.stdout.split('\n').slice(1, -1)).toEqual([
    'acme-erp: 3-10 order.paid of acme/order:1: {"total":42}',
    'acme-erp: 3-20 mail.bounced of acme/mail:1: null',
    'acme-erp: 3-30 order.paid of acme/order:1: null',
    'acme-erp: 3-40 order.paid of acme/order:1: null',
  ])
  await eventually(() => output.stderr.includes('refused: WEBHOOK_NOT_HANDLED: 3-20 fails once\n'))
  expect(output.stderr).toContain('refused: WEBHOOK_SIGNATURE_REFUSED: The signature is not by a secret')
  process.kill(-child.pid!, 'SIGTERM')
  await eventually(() => child.exitCode !== null || child.signalCode !== null)
}, 60_000)

const withNamespace = readdirSync(join(root, 'examples')).filter((file) => textOf(file).includes('_NAMESPACE'))

test.each(withNamespace)(
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
