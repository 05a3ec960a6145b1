/**
 * Stands between one process and Redis and knows every script of queues and routing that goes by. Each call is told to
 * `answered` with when it was passed on, when it was answered and what Redis said, also when the caller never hears of it:
 * a record that the code under test has no part in.
 *
 *   passing   whole frames go through in both directions, in order
 *   holding   one call, and all behind it on its connection, waits; the nemesis says what becomes of it
 *   cut       the client sees its connection end; what was passed on before is still answered, and told
 *
 * `faultOf(scripts)` says what happens to a call:
 *
 *   request lost   it never reaches Redis; the connection ends
 *   reply lost     Redis carries it out; instead of the reply the connection ends
 *   doubled        Redis gets it twice, once on a connection of its own, before or after
 */
import { once } from 'node:events'
import { connect, createServer } from 'node:net'
import { nowUs } from './clock.mjs'
import { loopback } from './redis.mjs'
import { createSplitter, isPush, readReply } from './resp.mjs'
import { scriptsOf } from './scripts.mjs'

const subscribes = /^\*\d+\r\n\$\d+\r\np?(un)?subscribe\r\n/i

export async function startScriptProxy({ redisPort, answered, faultOf }) {
  const sockets = new Set()
  const inFlight = new Map()
  let wanted

  const server = createServer({ noDelay: true }, (client) => serve(client))
  await once(server.listen(0, loopback), 'listening')

  function track(socket) {
    sockets.add(socket)
    socket.on('error', () => {})
    socket.once('close', () => sockets.delete(socket))
    return socket
  }

  function serve(client) {
    const redis = track(connect({ port: redisPort, host: loopback, noDelay: true }))
    track(client)
    const expected = []
    const commands = []
    const replies = []
    let isHeld = false
    let isWaitingForCopy = false
    let isCut = false
    let handsFree = false

    redis.once('close', () => {
      client.destroy()
      for (const onReply of expected.splice(0)) onReply?.(undefined)
    })
    client.once('close', () => {
      isCut = true
      endIfDone()
    })

    const splitCommands = createSplitter()
    client.on('data', (chunk) => {
      if (handsFree) return void redis.write(chunk)
      if (isCut) return
      commands.push(...splitCommands(chunk))
      pumpCommands()
    })
    const splitReplies = createSplitter()
    redis.on('data', (chunk) => {
      if (handsFree) return void client.write(chunk)
      replies.push(...splitReplies(chunk))
      pumpReplies()
    })

    function pumpCommands() {
      redis.cork()
      while (commands.length > 0 && !isHeld && !isCut) take(commands.shift())
      redis.uncork()
    }

    function take(frame) {
      const scripts = scriptsOf(frame)
      if (scripts === undefined) return pass(frame)
      if (wanted && scripts.includes(wanted.script)) return hold(frame, scripts)
      strike(frame, scripts, faultOf(scripts))
    }

    function strike(frame, scripts, fault) {
      if (fault === 'request lost') return cut()
      if (fault === 'reply lost') return pass(frame, scripts, () => cut())
      if (fault !== 'doubled') return pass(frame, scripts)
      if (Math.random() < 0.5) {
        isHeld = true
        void copy(frame, scripts).then(() => {
          isHeld = false
          pass(frame, scripts)
          pumpCommands()
        })
        return
      }
      pass(frame, scripts, () => {
        isWaitingForCopy = true
        void copy(frame, scripts).then(() => {
          isWaitingForCopy = false
          pumpReplies()
        })
      })
    }

    function pass(frame, scripts, then) {
      if (redis.destroyed) return
      if (scripts === undefined) {
        // A subscriber's connection calls no scripts, and its replies are not one for one.
        if (subscribes.test(frame.toString('latin1', 0, 40))) handsFree = true
        expected.push(undefined)
      } else {
        const told = follow(frame, scripts)
        expected.push((reply) => {
          told(reply)
          if (reply) then?.()
        })
      }
      redis.write(frame)
    }

    function pumpReplies() {
      client.cork()
      while (replies.length > 0 && !isWaitingForCopy) {
        const reply = replies.shift()
        if (isPush(reply)) client.write(reply)
        else {
          const onReply = expected.shift()
          onReply?.(reply)
          // A copy goes before the reply that it belongs to.
          if (isWaitingForCopy) {
            expected.unshift(undefined)
            replies.unshift(reply)
          } else if (!isCut) client.write(reply)
        }
      }
      client.uncork()
      endIfDone()
    }

    function hold(frame, scripts) {
      const { tell } = wanted
      wanted = undefined
      isHeld = true
      const over = () => {
        isHeld = false
      }
      tell({
        pass() {
          over()
          pass(frame, scripts)
          pumpCommands()
          endIfDone()
        },
        drop() {
          over()
          cut()
        },
      })
    }

    function cut() {
      isCut = true
      commands.length = 0
      client.destroySoon()
      endIfDone()
    }

    function endIfDone() {
      if (isCut && expected.length === 0 && !isHeld && !isWaitingForCopy) redis.destroy()
    }
  }

  /** Answers how to tell of the reply. */
  function follow(frame, scripts) {
    const call = { t: nowUs(), scripts, frame }
    const more = (by) => {
      for (const script of scripts) inFlight.set(script, (inFlight.get(script) ?? 0) + by)
    }
    more(1)
    return (reply) => {
      more(-1)
      answered({ ...call, answeredAt: reply ? nowUs() : undefined, reply: reply && readReply(reply) })
    }
  }

  function copy(frame, scripts) {
    const told = follow(frame, scripts)
    return new Promise((resolve) => {
      const split = createSplitter()
      const socket = track(connect({ port: redisPort, host: loopback, noDelay: true }))
      let reply
      socket.once('close', () => {
        told(reply)
        resolve()
      })
      socket.on('data', (chunk) => {
        reply ??= split(chunk)[0]
        if (reply) socket.destroy()
      })
      socket.write(frame)
    })
  }

  return {
    url: `redis://${loopback}:${server.address().port}`,
    /** Whether a call of this script is with Redis right now. */
    isCalling: (script) => (inFlight.get(script) ?? 0) > 0,
    /** Resolves with what can be done with the next call of this script, once it is here. */
    holdNext: (script) =>
      new Promise((tell) => {
        wanted = { script, tell }
      }),
    forgetHold() {
      wanted = undefined
    },
    close() {
      server.close()
      for (const socket of sockets) socket.destroy()
    },
  }
}
