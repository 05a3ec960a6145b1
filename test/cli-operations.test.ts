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
  return { bus, flags, cli, json, queue, namespace }
}

test('op, op cancel and ops: one operation, and those of an object', async () => {
  const { bus, cli, json, queue, flags, namespace } = await place()
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
  const cancelled = await cli('op', 'cancel', third)
  expect([cancelled.stdout, cancelled.stderr]).toEqual([expect.stringMatching(/\nstatus +cancelled\n/), ''])
  expect((await cli('op', 'cancel', id)).stderr).toBe('It had ended before: nothing has changed.\n')
  const listed = await json('ops', 'k')
  expect(listed.map((one) => one.id).sort()).toEqual([id, second, third].sort())
  expect((await json('ops', 'k', '--no-detail', '--limit', '1'))[0]).not.toHaveProperty('input')
  expect((await cli('ops', 'k')).stdout).toMatch(/^queued +id +status +kind +attempts +took +error\n/)
  expect((await cli('ops', 'nothing')).stderr).toContain(
    `No tracked queue knows an operation of it in namespace "${namespace}"`,
  )
  const painted = await callCli(['ops', 'k', ...flags], { columns: 200, env: { TERM: 'xterm' } })
  expect(painted.stdout).toContain('\u001b[31mno such')
  expect(painted.stdout).toMatch(/ -\n/)
  expect(painted.stdout).not.toContain('\u001b[31m-')
  expect((await cli('ops', 'k', '--tenant', 'acme')).stdout).toBe('')
  const waiting = runCli(['op', second, '--wait', '20s', '--json', ...flags])
  await (await queue.claim()).items[0]!.ack('ok')
  expect(jsonLines((await waiting).stdout)[0]).toMatchObject({ status: 'succeeded', output: 'ok' })
  const unknown = await cli('op', 'sync.aaaaaaaaaaaaaaaaaaaa')
  expect([unknown.code, unknown.stderr]).toEqual([1, expect.stringContaining('in this namespace')])
  expect((await cli('stats', 'sync')).stdout).toMatch(
    /^minute +succeeded +failed +cancelled +p50 +p95\n(\d{4}-\d\d-\d\dT\d\d:\d\dZ .*\n)+all of them +1 +1 +1 .*\never +1 +1 +1 +- +-\n$/,
  )
  expect((await json('stats', 'sync', '--last', '5m'))[0]).toMatchObject({ succeeded: 1, failed: 1, cancelled: 1 })
  const other = await cli('stats', 'mail')
  expect([other.code, other.stderr]).toEqual([1, expect.stringContaining('put its whole definition again')])
  for (const [words, said] of [
    [['op', id, 'cancel'], `(Did you mean busbar op cancel ${id}?)`],
    [['op', 'cancle', id], `(Did you mean busbar op cancel ${id}?)`],
  ] as const)
    expect(await cli(...words)).toMatchObject({ code: 2, stderr: expect.stringContaining(said) })
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
  expect((await json('trace', `sync.${id}`))[0]).toMatchObject({ id, places: [{ state: 'waiting' }] })
  expect((await cli('op', `sync.${id}`)).stdout).toContain(`\nevent      ${id}\n`)
  const [later] = await json('send', 'sync', '1', '--delay', '1h')
  expect((await cli('op', String(later!.id))).stdout).toMatch(/\nqueued +\S+\ndue +\S+Z\nstarted +-\n/)
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

test('what runs and is cancelled is told, and goes on until it hears', async () => {
  const { cli, queue } = await place()
  const { id } = await queue.send(1)
  await queue.claim()
  const { stdout, stderr } = await cli('op', 'cancel', id)
  expect(stdout).toMatch(/\nstatus +running, cancelling\n/)
  expect(stderr).toContain('its handler is told: one that ignores its signal goes on until its timeout')
  expect((await cli('op', 'cancel', id, '--json')).stderr).toBe('')
})

test('dead letters of routed events are known by the names of their operations too', async () => {
  const { bus, cli, queue } = await place()
  await bus.run({ signals: false })
  const events = [await bus.publish('order.paid'), await bus.publish('order.paid')]
  const { id: sent } = await queue.send(3)
  for (let dead = 0; dead < 3; dead += 1) await (await queue.claim({ wait: '20s' })).items[0]!.dead('no')
  const [first, second] = events.map(({ id }) => `sync.${id}`)
  expect((await cli('dead', 'redrive', 'sync', first!, sent)).stdout).toBe('2 dead letters back in line.\n')
  const other = await cli('dead', 'discard', 'sync', `other.${events[1]!.id}`)
  expect([other.code, other.stderr]).toEqual([1, '1 id named no such dead letter.\n'])
  expect((await cli('dead', 'discard', 'sync', second!)).stdout).toBe('1 dead letter given up.\n')
})

test('triggers: made, listed without their secrets, rotated, disabled, taken away', async () => {
  const { bus, cli, json } = await place()
  expect((await cli('triggers')).stderr).toContain('There is no trigger yet.')
  const made = await cli('triggers', 'create', 'resync', '--queue', 'sync', '--key', 'link:7', '--data', '{"link":7}')
  expect(made.stdout).toMatch(/^\/_[\w-]{20}\n$/)
  expect(made.stderr).toContain('It is not shown again.')
  expect(made.stderr).toMatch(
    /\nNo HTTP door is open in namespace \S+: .* up --redis \S+ --namespace \S+` opens one\.\n$/,
  )
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
  expect((await cli('triggers', 'rotate', 'resync')).stderr).toContain('No HTTP door is open')
  await bus.run({ signals: false, role: 'server' })
  expect((await cli('triggers', 'rotate', 'resync')).stderr).not.toContain('No HTTP door')
  const [rotated] = await json('triggers', 'rotate', 'resync')
  await expect(bus.triggers.fire(secret)).rejects.toMatchObject({ code: 'TRIGGER_NOT_FOUND' })
  await bus.triggers.fire(String(rotated!.secret))
  expect((await cli('triggers', 'create', 'resync', '--queue', 'sync')).stderr).toContain('TRIGGER_EXISTS')
  expect((await cli('triggers', 'create', 'x', '--queue', 'sync', '--data', '{')).code).toBe(2)
  expect((await cli('triggers', 'rm', 'resync')).stdout).toBe('resync is removed.\n')
  expect((await cli('triggers', 'rm', 'resync')).code).toBe(1)
})
