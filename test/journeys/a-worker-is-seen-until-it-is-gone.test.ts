/** Who runs: what each process says of itself, what it holds, who leads, and how many came and went. */
import { mkdtempSync, rmSync } from 'node:fs'
import { hostname, tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, onTestFinished, test } from 'vitest'
import type { Bus, WorkerFacts } from '../../src/index.ts'
import { version } from '../../src/version.ts'
import { freshNamespace, plainRedis, redisUrl, testBus } from '../support/bus.ts'
import { callCli, jsonLines, startCli } from '../support/cli.ts'
import { eventually } from '../support/eventually.ts'
import { testDoor } from '../support/http.ts'
import { quickGroup as group, spawnWorker } from '../support/workers.ts'

const flagsOf = ({ namespace }: Pick<Bus, 'namespace'>) => ['--redis', redisUrl(), '--namespace', namespace]

function workerOf(namespace: string, worker: string, partitions = 4) {
  const bus = testBus({ namespace, worker, group, partitions })
  bus.processor('search', { match: '>' }, async (events) => {
    for await (const _ of events);
  })
  return bus
}

const heldBy = ({ holds }: WorkerFacts) => holds.flatMap(({ partitions }) => partitions)

test('[H15] every running process: name, role, version, last seen, what it holds and who leads; starts and stops counted', async () => {
  const namespace = freshNamespace()
  const [first, second] = [workerOf(namespace, 'w1'), workerOf(namespace, 'w2')]
  first.task('compact', { every: '1h' }, () => undefined)
  expect(await first.workers()).toEqual({ workers: [], joined: 0, left: 0, expired: 0, replaced: 0 })

  await first.run()
  await second.run({ only: ['search'], role: 'indexer' })
  const shared = await eventually(async () => {
    const { workers, ...counts } = await first.workers()
    return workers.length === 2 && workers.every((worker) => heldBy(worker).length === 2) && { workers, counts }
  })
  const own = { version, host: hostname(), pid: process.pid, lastSeen: expect.any(Number), joined: expect.any(Number) }
  const holds = [{ processor: 'search', partitions: expect.any(Array) }]
  expect(shared).toEqual({
    workers: [
      { name: 'w1', role: 'worker', runs: ['search', 'compact'], leads: true, holds, ...own },
      { name: 'w2', role: 'indexer', runs: ['search'], leads: false, holds, ...own },
    ],
    counts: { joined: 2, left: 0, expired: 0, replaced: 0 },
  })
  expect(shared.workers.flatMap(heldBy).sort()).toEqual([0, 1, 2, 3])
  for (const { lastSeen, joined } of shared.workers)
    expect([Date.now() - lastSeen < 2_000, lastSeen >= joined]).toEqual([true, true])

  await first.close()
  const after = await eventually(async () => {
    const { workers, ...counts } = await second.workers()
    return workers.length === 1 && heldBy(workers[0]!).length === 4 && { name: workers[0], counts }
  })
  expect(after).toMatchObject({ name: { name: 'w2', leads: true }, counts: { joined: 2, left: 1, expired: 0 } })
})

test('[H15] one that is killed is gone after the expiry, also when nobody is left to see it; another takes over', async () => {
  const namespace = freshNamespace()
  const viewer = testBus({ namespace, group })
  const child = spawnWorker(namespace, 'doomed', { STREAM: 'search' })
  await child.waitForLine('ready')
  const alive = await eventually(async () => {
    const { workers } = await viewer.workers()
    return workers.find((worker) => heldBy(worker).length === 16) ?? false
  })
  expect(alive).toMatchObject({ name: 'doomed', leads: true, pid: child.pid, runs: ['search', 'beat'] })
  expect((await viewer.streams.get('search')).partitions[3]!.owner).toBe('doomed')
  await expect(viewer.streams.remove('search')).rejects.toMatchObject({ code: 'STREAM_IN_USE' })

  child.kill()
  await child.exited
  await eventually(async () => (await viewer.workers()).workers.length === 0, { timeoutMs: 2_000 })
  expect(await viewer.workers()).toEqual({ workers: [], joined: 1, left: 0, expired: 1, replaced: 0 })
  const left = await eventually(async () => {
    const { members, partitions } = await viewer.streams.get('search')
    return members.length === 0 && partitions
  })
  expect(left.map(({ owner }) => owner)).toEqual(Array(16).fill(null))

  const heir = workerOf(namespace, 'heir', 16)
  await heir.run()
  await eventually(async () => {
    const { workers, expired } = await viewer.workers()
    return workers.length === 1 && workers[0]!.leads && heldBy(workers[0]!).length === 16 && expired === 1
  })
  // And now it is really gone.
  expect(await plainRedis().hkeys(`${namespace}:{group.workers}:members`)).toEqual(['heir'])
  await heir.close()
  await viewer.streams.remove('search')
  expect(await viewer.streams.list()).toEqual([])
  await expect(viewer.streams.get('search')).rejects.toMatchObject({ code: 'STREAM_NOT_FOUND' })
})

test('[H15] on the command line and over HTTP', async () => {
  const { bus, get } = await testDoor({ bus: { worker: 'w1', partitions: 4 } })
  bus.processor('search', { match: '>' }, async (events) => {
    for await (const _ of events);
  })
  await bus.topics()
  expect(await callCli(['workers', ...flagsOf(bus)])).toMatchObject({
    code: 0,
    stderr: 'Nothing runs in this namespace.\n',
    stdout: '0 started, 0 left, 0 expired, 0 replaced.\n',
  })
  await bus.run({ role: 'a\u001b[2Jb' })
  await eventually(async () => heldBy((await bus.workers()).workers[0]!).length === 4)
  const dataDir = mkdtempSync(join(tmpdir(), 'busbar-workers-'))
  onTestFinished(() => rmSync(dataDir, { recursive: true, force: true }))
  const server = startCli(['up', '--http-port', '0', '--data-dir', dataDir, ...flagsOf(bus)])
  await server.waitForLine(/Ctrl-C/)
  await eventually(async () => (await bus.workers()).workers.length === 2)

  const lines = (await callCli(['workers', ...flagsOf(bus)])).stdout.split('\n')
  expect(lines[0]).toMatch(/^name +leads +role +runs +version +host +last seen +holds$/)
  expect(lines[1]).toMatch(/^w1 +leads +a\\u001b\[2Jb +search +\S+ +\S+ +\S+Z +search 0-3$/)
  expect(lines[2]).toMatch(/^\S{20} +- +server +- +\S+ +\S+ +\S+Z +-$/)
  expect(lines[3]).toBe('2 started, 0 left, 0 expired, 0 replaced.')
  const json = jsonLines((await callCli(['workers', '--json', ...flagsOf(bus)])).stdout)
  const { workers, ...counts } = (await get('/v1/workers')).json
  expect(json.map(({ name }) => name)).toEqual(['w1', workers[1].name, undefined])
  expect(json[0]).toEqual({ ...workers[0], lastSeen: expect.any(Number) })
  expect(json[2]).toEqual(counts)
})
