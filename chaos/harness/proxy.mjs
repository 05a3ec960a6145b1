/**
 * Stands between one worker and Redis, and sees every commit of a cursor go by: under which epoch, when it was passed on,
 * and what Redis said. That record is the harness's own; the code under test has no part in it.
 *
 * On request it keeps the next commit back, so that a fault can strike its sender in the middle of it:
 *
 *   passing   whole frames go through in both directions, in order
 *   holding   a commit, and all behind it on its connection, waits; the nemesis says what becomes of it
 */
import { once } from 'node:events'
import { connect, createServer } from 'node:net'
import { commitScript } from '../../dist/group/scripts.js'
import { nowUs } from './clock.mjs'
import { loopback } from './redis.mjs'
import { createSplitter, isPush, wordsOf } from './resp.mjs'

const subscribes = /^p?(un)?subscribe$/i
const perPartition = 5 // partition, epoch, cursor, act, rate

/** `committed` gets each commit once it is answered, or its connection is gone. */
export async function startProxy({ redisPort, keyPart, committed }) {
  const sockets = new Set()
  const inFlight = new Set()
  let holdNext

  const server = createServer({ noDelay: true }, (client) => {
    const redis = connect({ port: redisPort, host: loopback, noDelay: true })
    const expected = []
    const waiting = []
    let held = false
    let handsFree = false
    for (const socket of [client, redis]) {
      sockets.add(socket)
      socket.on('error', () => {})
      socket.once('close', () => {
        sockets.delete(socket)
        // A client that is gone takes nothing back: what was held for it may still be passed on, late.
        if (socket === redis || !held) for (const other of [client, redis]) other.destroy()
        if (socket === redis) for (const settle of expected.splice(0)) settle?.(undefined)
      })
    }

    const splitCommands = createSplitter()
    client.on('data', (chunk) => {
      if (handsFree) return void redis.write(chunk)
      for (const frame of splitCommands(chunk)) {
        if (held) waiting.push(frame)
        else take(frame)
      }
    })
    const splitReplies = createSplitter()
    redis.on('data', (chunk) => {
      client.write(chunk)
      if (handsFree) return
      for (const frame of splitReplies(chunk)) if (!isPush(frame)) expected.shift()?.(frame)
    })

    function take(frame) {
      const said = readCommit(frame)
      if (said && holdNext) return hold(frame, said)
      pass(frame, said)
    }

    function pass(frame, said) {
      if (redis.destroyed) return
      // A subscriber's connection carries no commits, and its replies are not one for one.
      if (!said && subscribes.test(frame.length < 2_000 ? wordsOf(frame)[0] : '')) handsFree = true
      if (said) {
        const commit = { t: nowUs(), said }
        inFlight.add(commit)
        expected.push((reply) => {
          inFlight.delete(commit)
          const words = reply?.[0] === 0x2a ? wordsOf(reply).slice(1) : []
          committed({ ...commit, answeredAt: reply ? nowUs() : undefined, words })
        })
      } else expected.push(undefined)
      redis.write(frame)
    }

    function hold(frame, said) {
      const tell = holdNext
      holdNext = undefined
      held = true
      tell({
        pass() {
          held = false
          pass(frame, said)
          for (const next of waiting.splice(0)) pass(next, readCommit(next))
          if (client.destroyed) redis.end()
        },
        drop() {
          held = false
          client.destroy()
          redis.destroy()
        },
      })
    }

    function readCommit(frame) {
      if (!frame.includes(commitScript.sha, 0, 'latin1') && !frame.includes(commitScript.source, 0)) return undefined
      const [, , keys, owners, ...rest] = wordsOf(frame)
      if (!owners?.includes(keyPart)) return undefined
      const args = rest.slice(Number(keys)) // the other keys and the channel go before what is said
      const said = []
      for (let i = 0; i < args.length; i += perPartition)
        said.push({ partition: Number(args[i]), epoch: Number(args[i + 1]), cursor: Number(args[i + 2]) })
      return said
    }
  })
  await once(server.listen(0, loopback), 'listening')

  return {
    url: `redis://${loopback}:${server.address().port}`,
    /** Whether a commit is with Redis right now. */
    get isCommitting() {
      return inFlight.size > 0
    },
    /** Resolves with what can be done with the next commit, once it is here. */
    holdNextCommit: () =>
      new Promise((resolve) => {
        holdNext = resolve
      }),
    forgetHold() {
      holdNext = undefined
    },
    close() {
      server.close()
      for (const socket of sockets) socket.destroy()
    },
  }
}
