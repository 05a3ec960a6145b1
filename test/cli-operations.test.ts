/** Operations, counts, traces and triggers on the command line. */
import { expect, test } from 'vitest'
import type { Bus } from '../src/bus.ts'
import { freshNamespace, redisUrl, testBus } from './support/bus.ts'
import { callCli, jsonLines, runCli } from './support/cli.ts'
import { eventually } from './support/eventually.ts'

async function place() {
  const namespace = freshNamespace()
  const bus = testBus({ namespace }) as unknown as Bus
  const flags = ['--redis', redisUrl(), '--namespace', namespace]
  const cli = (...args: string[]) => callCli([...args, ...flags])
  const json = async (...args: string[]) => jsonLines((await cli(...args, '--json')).stdout)
  await cli('queue', 'put', 'sync', '--track', 'all', '--match', 'order.*', '--redact', 'pin')
  const queue = await bus.queues.open('sync')
  return { bus, flags, cli, json, queue }
}

test('op, op cancel and ops: one operation, and those of an object', async () => {
  const { bus, cli, json, queue, flags } = await place()
  expect((await cli('queue', 'sync')).stdout).toMatch(/\ntracked +all\nredacts +pin\n/)
  await cli('queue', 'put', 'mail')
  expect((await cli('queues')).stdout).toMatch(
    /^name +match .* oldest +tracked +paused\nmail +- .* - +- +-\nsync +order\.\* .* - +all +-\n$/,
  )
  const [sent] = await json(
    'send',
    'sync',
    '{"pin":1234,"n":1}',
    '--key',
    'k',
    '--kind',
    'manual',
    '--request-id',
    'r1',
  )
  const id = String(sent!.id)
  const shown = (await cli('op', id)).stdout
  expect(shown).toMatch(/^id +sync\.\S+\nstatus +queued\n/)
  expect(shown).toMatch(/\nkind +manual\nrequest +r1\n/)
  expect(shown).toContain('{"pin":"[redacted]","n":1}')
  await (await queue.claim()).items[0]!.dead('no such \u001b[31mthing')
  expect((await json('op', id))[0]).toMatchObject({ id, status: 'failed', error: 'no such \u001b[31mthing' })
  const failed = (await cli('op', id)).stdout
  expect(failed).toMatch(/\nerror +no such \\u001b\[31mthing\n/)
  const second = (await queue.send(2, { key: 'k' })).id
  const third = (await queue.send(3, { key: 'k' })).id
  expect((await cli('op', 'cancel', third)).stdout).toMatch(/\nstatus +cancelled\n/)
  const listed = await json('ops', 'k')
  expect(listed.map((one) => one.id).sort()).toEqual([id, second, third].sort())
  expect((await json('ops', 'k', '--no-detail', '--limit', '1'))[0]).not.toHaveProperty('input')
  expect((await cli('ops', 'k')).stdout).toMatch(/^queued +id +status +kind +attempts +took +error\n/)
  expect((await cli('ops', 'nothing')).stderr).toContain('No tracked queue knows an operation of it')
  expect((await cli('ops', 'k', '--tenant', 'acme')).stdout).toBe('')
  const waiting = runCli(['op', second, '--wait', '20s', '--json', ...flags])
  await (await queue.claim()).items[0]!.ack('ok')
  expect(jsonLines((await waiting).stdout)[0]).toMatchObject({ status: 'succeeded', output: 'ok' })
  const unknown = await cli('op', 'sync.aaaaaaaaaaaaaaaaaaaa')
  expect([unknown.code, unknown.stderr]).toEqual([1, expect.stringContaining('in this namespace')])
  expect((await cli('stats', 'sync')).stdout).toMatch(
    /^minute +succeeded +failed +cancelled +p50 +p95\n(\S+ \S+ .*\n)+all of them +1 +1 +1 .*\never +1 +1 +1 +- +-\n$/,
  )
  expect((await json('stats', 'sync', '--last', '5m'))[0]).toMatchObject({ succeeded: 1, failed: 1, cancelled: 1 })
  expect((await cli('stats', 'other')).code).toBe(1)
  expect((await bus.operations.stats('sync')).total).toEqual({ succeeded: 1, failed: 1, cancelled: 1 })
})

test('trace: where an event went', async () => {
  const { bus, cli, json } = await place()
  await bus.run({ signals: false })
  expect(await cli('trace', '0-1')).toMatchObject({
    stdout: '',
    stderr: expect.stringContaining('and nobody else knows it'),
  })
  const { id } = await bus.publish('order.paid', { n: 1 })
  await eventually(async () => expect((await json('trace', id))[0]).toMatchObject({ places: [{ state: 'waiting' }] }))
  expect((await cli('trace', id)).stdout).toMatch(
    new RegExp(
      `^kind +name +state +attempts +operation or batch +error\nqueue +sync +waiting +0 +sync\\.${id} queued +-\n$`,
    ),
  )
  expect((await json('trace', id))[0]).toMatchObject({ id, event: { type: 'order.paid' } })
  expect((await cli('trace', '0-1')).stderr).toContain('only what still knows it is shown')
  expect((await cli('trace', 'x')).code).toBe(2)
  const other = await bus.publish('mail.sent')
  expect((await cli('trace', other.id)).stderr).toContain('It went nowhere')
})

test('[O13] trace: where a processor stands still, and why', async () => {
  const { bus, cli } = await place()
  bus.processor('search', { match: 'order.*', retry: { attempts: 1 }, concurrency: 1 }, () => {
    throw new Error('no \u001b[31mroom')
  })
  await bus.run({ signals: false })
  const { id } = await bus.publish('order.paid', { n: 1 })
  await eventually(async () =>
    expect((await cli('trace', id)).stdout).toMatch(/\nprocessor +search +blocked +1 +- +Error: no \\u001b\[31mroom\n/),
  )
})

test('triggers: made, listed without their secrets, rotated, disabled, taken away', async () => {
  const { bus, cli, json } = await place()
  expect((await cli('triggers')).stderr).toContain('There is no trigger yet.')
  const made = await cli('triggers', 'create', 'resync', '--queue', 'sync', '--key', 'link:7', '--data', '{"link":7}')
  expect(made.stdout).toMatch(/^\/_[\w-]{20}\n$/)
  expect(made.stderr).toContain('It is not shown again.')
  const secret = made.stdout.trim().slice(2)
  const listed = await cli('triggers')
  expect(listed.stdout).toMatch(
    /^name +queue +tenant +key +state +secret since\nresync +sync +default +link:7 +enabled +\S+\n$/,
  )
  expect(listed.stdout + (await cli('triggers', '--json')).stdout).not.toContain(secret)
  expect((await bus.triggers.fire(secret)).id).toMatch(/^sync\./)
  expect((await cli('triggers', 'disable', 'resync')).stdout).toBe('resync is disabled.\n')
  await expect(bus.triggers.fire(secret)).rejects.toMatchObject({ code: 'TRIGGER_DISABLED' })
  expect((await cli('triggers', 'enable', 'resync')).stdout).toBe('resync is enabled.\n')
  const [rotated] = await json('triggers', 'rotate', 'resync')
  await expect(bus.triggers.fire(secret)).rejects.toMatchObject({ code: 'TRIGGER_NOT_FOUND' })
  await bus.triggers.fire(String(rotated!.secret))
  expect((await cli('triggers', 'create', 'resync', '--queue', 'sync')).stderr).toContain('TRIGGER_EXISTS')
  expect((await cli('triggers', 'create', 'x', '--queue', 'sync', '--data', '{')).code).toBe(2)
  expect((await cli('triggers', 'rm', 'resync')).stdout).toBe('resync is removed.\n')
  expect((await cli('triggers', 'rm', 'resync')).code).toBe(1)
})
